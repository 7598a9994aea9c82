"""Compute the nodes to request from an autoscaler while jobs wait. Pure.

A request describes the capacity of the whole cluster, so it includes the running jobs. It consists of bundles, each of
which must fit on one node. The autoscaler chooses their place in the cluster; placement decides about the nodes that
join.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from regroup.service.domain.topology import ACCELERATOR_LABEL, ANY_KIND, IMAGE_LABEL, Level, NodeKind
from regroup.service.policy.placement.demand import Demand, Shortage
from regroup.service.policy.scheduling.entries import RunningJob, WaitingJob
from regroup.service.policy.scheduling.quota import WaitCause

MAX_BUNDLES = 2_000
"""Maximum size of a request, which is written as a whole each time. Jobs that would exceed it wait for the next one."""
SOLVED_BY_NODES: Set[Shortage | WaitCause] = frozenset(
    {Shortage.NO_NODES, Shortage.TOO_LARGE, Shortage.RESOURCES, Shortage.PRIORITY}
)
"""Reasons of waiting that more nodes would resolve: not quotas, dependencies or closed nodes."""


@dataclass(frozen=True, order=True)
class Bundle:
    """Resources that must be on one node."""

    cpus: int
    gpus: int = 0
    memory_bytes: int = 0
    kind: NodeKind = ANY_KIND

    def to_ray(self) -> dict[str, float]:
        """Return the resources under Ray's names."""
        named = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory_bytes}
        return {name: float(amount) for name, amount in named.items() if amount}

    def labels(self) -> dict[str, str]:
        """Return the labels that the node must have."""
        named = {ACCELERATOR_LABEL: self.kind.accelerator, IMAGE_LABEL: self.kind.image}
        return {label: value for label, value in named.items() if value}


@dataclass(frozen=True)
class NodeRequest:
    """Capacity requested for the whole cluster. An empty request needs no node that is not in use."""

    bundles: tuple[Bundle, ...] = ()
    jobs: frozenset[str] = frozenset()
    """Ids of the jobs that wait for this capacity."""


def build_node_request(
    waits: Sequence[tuple[WaitingJob, Shortage | WaitCause]],
    running: Sequence[RunningJob],
    *,
    now_s: float,
    after_s: float,
) -> NodeRequest:
    """Return the capacity to request.

    Args:
        waits: waiting jobs with their reasons, in admission order.
        running: jobs that hold devices.
        now_s: current time in Unix seconds.
        after_s: minimum waiting time of a job that is included.
    """
    held = [_bundle(job.demand, ranks) for job in running if not job.is_releasing for _, ranks in job.node_ranks]
    found, jobs = list(held), set[str]()
    for job, reason in waits:
        if reason not in SOLVED_BY_NODES or now_s - job.queued_s < after_s:
            continue
        bundles = bundles_of(job.sizes[-1].demand)
        if len(found) + len(bundles) <= MAX_BUNDLES:
            found += bundles
            jobs.add(job.job_id)
    return NodeRequest(tuple(sorted(found)), frozenset(jobs)) if jobs else NodeRequest()


def bundles_of(demand: Demand) -> list[Bundle]:
    """Return the ranks of a demand as bundles that must not be split: its tensor-parallel groups, or all of it."""
    if demand.required is Level.NODE:
        return [_bundle(demand, demand.ranks)]
    piece = demand.segment if demand.segment_within is Level.NODE else 1
    return [_bundle(demand, piece)] * (demand.ranks // piece)


def _bundle(demand: Demand, ranks: int) -> Bundle:
    gpus = ranks if demand.device == "cuda" else 0
    return Bundle(ranks * demand.cpus, gpus, ranks * demand.memory_bytes, demand.kind)
