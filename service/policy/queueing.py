"""Who is next: first come, first served. A job that cannot fit at all waits aside and blocks nobody."""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.layout import Layout
from regroup.service.policy.placement import Demand, Placement, Shortage, Unplaceable, fits_empty, occupy, place
from regroup.service.policy.topology import Node
from regroup.service.policy.traffic import axes_of_spec
from regroup.service.spec import JobSpec


@dataclass(frozen=True)
class Waiting:
    """A queued job."""

    job_id: str
    name: str
    spec: JobSpec


@dataclass(frozen=True)
class Turn:
    """The job takes these nodes now."""

    job_id: str
    layout: Layout
    demand: Demand
    placement: Placement


@dataclass(frozen=True)
class Wait:
    """The job stays queued, and why."""

    job_id: str
    why: Unplaceable


def decide(queue: Sequence[Waiting], nodes: Sequence[Node]) -> list[Turn | Wait]:
    """One decision for each job, in the order of the queue (oldest first)."""
    decisions: list[Turn | Wait] = []
    next_up: Waiting | None = None
    for job in queue:
        layout = wanted_layout(job.spec, nodes)
        demand = demand_of(job.spec, layout)
        outcome = place(demand, nodes)
        if isinstance(outcome, Unplaceable) and outcome.reason is not Shortage.BUSY:
            decisions.append(Wait(job.job_id, outcome))
        elif next_up is not None:
            message = f"waits for its turn: job {next_up.name!r} came earlier and waits for devices"
            decisions.append(Wait(job.job_id, Unplaceable(Shortage.BEHIND, message)))
        elif isinstance(outcome, Unplaceable):
            next_up = job
            decisions.append(Wait(job.job_id, outcome))
        else:
            nodes = occupy(nodes, demand, outcome)
            decisions.append(Turn(job.job_id, layout, demand, outcome))
    return decisions


def wanted_layout(spec: JobSpec, nodes: Sequence[Node]) -> Layout:
    """The target layout, or the largest below it that the cluster could hold if nothing else ran."""
    ladder = [layout for layout in spec.ladder if layout.world_size <= _target(spec).world_size]
    holdable = [layout for layout in ladder if fits_empty(demand_of(spec, layout), nodes)]
    return holdable[-1] if holdable else ladder[0]


def demand_of(spec: JobSpec, layout: Layout) -> Demand:
    """What the job asks for at this layout."""
    each = spec.resources
    talk, where = axes_of_spec(spec, layout), spec.topology.within()
    return Demand(layout.world_size, layout.segment_size, each.device, each.cpus, each.memory or 0, **where, axes=talk)


def _target(spec: JobSpec) -> Layout:
    return spec.layout.at(spec.layout.dp.target)
