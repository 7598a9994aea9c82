"""Which nodes an autoscaler is asked for while jobs wait. Pure.

A request says what the whole cluster has to hold, so what runs is part of it. It is made of bundles, each of which has
to fit on one node; where in the cluster they are is left to the autoscaler, and placement judges what comes.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from regroup.service.domain.topology import ACCELERATOR_LABEL, ANY_KIND, IMAGE_LABEL, Level, NodeKind
from regroup.service.policy.placement.demand import Demand, Shortage
from regroup.service.policy.scheduling.entries import RunningJob, WaitingJob
from regroup.service.policy.scheduling.quota import HoldReason

MAX_BUNDLES = 2_000
"""A request is written whole each time; jobs that would make it longer wait for the next one."""
SOLVED_BY_NODES: Set[Shortage | HoldReason] = frozenset(
    {Shortage.NO_NODES, Shortage.TOO_LARGE, Shortage.RESOURCES, Shortage.PRIORITY}
)
"""Why jobs wait that more nodes would let start: not quotas, other jobs, or nodes that are only closed."""


@dataclass(frozen=True, order=True)
class Bundle:
    """What is held together on one node."""

    cpus: int
    gpus: int = 0
    memory_bytes: int = 0
    kind: NodeKind = ANY_KIND

    def to_ray(self) -> dict[str, float]:
        """In Ray's names."""
        named = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory_bytes}
        return {name: float(amount) for name, amount in named.items() if amount}

    def labels(self) -> dict[str, str]:
        """That its node must have."""
        named = {ACCELERATOR_LABEL: self.kind.accelerator, IMAGE_LABEL: self.kind.image}
        return {label: value for label, value in named.items() if value}


@dataclass(frozen=True)
class NodeRequest:
    """What the cluster is to hold; nothing: no node is wanted that is not used."""

    bundles: tuple[Bundle, ...] = ()
    jobs: frozenset[str] = frozenset()
    """Ids of those that wait for it."""


def build_node_request(
    waits: Sequence[tuple[WaitingJob, Shortage | HoldReason]],
    running: Sequence[RunningJob],
    *,
    now_s: float,
    after_s: float,
) -> NodeRequest:
    """What to ask for.

    Args:
        waits: who waits and why, in the order of turns.
        running: who holds devices.
        after_s: a job that waits for less may yet find room by itself.
    """
    held = [_bundle(job.demand, ranks) for job in running if not job.is_releasing for _, ranks in job.node_ranks]
    found, jobs = list(held), set[str]()
    for job, reason in waits:
        if reason not in SOLVED_BY_NODES or now_s - job.queued_s < after_s:
            continue
        wanted = bundles_of(job.sizes[-1].demand)
        if len(found) + len(wanted) <= MAX_BUNDLES:
            found += wanted
            jobs.add(job.job_id)
    return NodeRequest(tuple(sorted(found)), frozenset(jobs)) if jobs else NodeRequest()


def bundles_of(demand: Demand) -> list[Bundle]:
    """A job's ranks, in pieces that must not be split: its tensor-parallel groups, or all of it."""
    if demand.required is Level.NODE:
        return [_bundle(demand, demand.ranks)]
    piece = demand.segment if demand.segment_within is Level.NODE else 1
    return [_bundle(demand, piece)] * (demand.ranks // piece)


def _bundle(demand: Demand, ranks: int) -> Bundle:
    gpus = ranks if demand.device == "cuda" else 0
    return Bundle(ranks * demand.cpus, gpus, ranks * demand.memory_bytes, demand.kind)
