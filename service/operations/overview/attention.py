"""Problems that need a person, most urgent first, each with its remedy. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regroup.service.cluster_state.clusters import ClusterState
from regroup.service.domain.states import JobState
from regroup.service.operations.nodes import NodeState
from regroup.service.policy.placement.demand import Shortage
from regroup.service.store.overview import FailingHook, LiveJob
from regroup.service.store.rows.records import (
    EVEN_PACE,
    HELD,
    NODE_WELL,
    PLACEABLE,
    PLATFORM_FAULT,
    WELL_USED,
    WITHIN_BUDGET,
)


class AttentionKind(StrEnum):
    """Kind of what needs a person, the most urgent first."""

    CLUSTER_SILENT = "cluster_silent"
    """A cluster does not answer."""
    JOB_HELD = "job_held"
    """A failed job holds its nodes."""
    PLATFORM_FAULT = "platform_fault"
    """The server fails to handle a job."""
    NODE_QUARANTINED = "node_quarantined"
    """A node has failed too often and takes no ranks."""
    NODE_UNREACHABLE = "node_unreachable"
    """A node does not answer."""
    BUDGET_USED = "budget_used"
    """A budget keeps a job from its devices."""
    JOB_UNPLACEABLE = "job_unplaceable"
    """A job waits for nodes that do not exist, or are closed."""
    NODE_UNWELL = "node_unwell"
    """A node of a running job is short of a resource or has a fault."""
    SLOW_RANK = "slow_rank"
    """A rank delays the others of its job."""
    LOW_UTILIZATION = "low_utilization"
    """A job makes little use of its devices."""
    HOOK_FAILING = "hook_failing"
    """The deliveries of a hook fail."""


@dataclass(frozen=True)
class Attention:
    """Something that needs a person."""

    kind: AttentionKind
    message: str
    remedy: str
    job: LiveJob | None = None
    node: str | None = None
    cluster: str | None = None
    hook: FailingHook | None = None


_CONDITIONS: Mapping[str, tuple[bool, AttentionKind, str]] = {
    HELD: (True, AttentionKind.JOB_HELD, "Inspect its processes, then release its nodes."),
    PLATFORM_FAULT: (True, AttentionKind.PLATFORM_FAULT, "Read its reason; cancel the job if it does not pass."),
    WITHIN_BUDGET: (False, AttentionKind.BUDGET_USED, "Raise the budget, or cancel the job."),
    NODE_WELL: (False, AttentionKind.NODE_UNWELL, "Drain the node, so that the job moves before it fails."),
    EVEN_PACE: (False, AttentionKind.SLOW_RANK, "Compare the stacks of its ranks; cordon the node of the slow one."),
    WELL_USED: (False, AttentionKind.LOW_UTILIZATION, "Find what its ranks wait for; resize the job if it needs less."),
}
"""Condition of a job → the status that needs a person, its kind and its remedy."""
_NEVER_PLACED: Mapping[str, str] = {
    Shortage.NO_NODES: "Add nodes, or open those that are closed.",
    Shortage.TOO_LARGE: "Ask for fewer devices, or add nodes.",
    Shortage.NODES_CLOSED: "Open the nodes that are closed, or ask for fewer devices.",
}
_NODES: Mapping[str, tuple[AttentionKind, str]] = {
    "quarantined": (AttentionKind.NODE_QUARANTINED, "Repair the node, then uncordon it; or leave it until it expires."),
    "fenced": (AttentionKind.NODE_UNREACHABLE, "Check that the node runs and has a connection."),
    "unreachable": (AttentionKind.NODE_UNREACHABLE, "Check that its cluster answers."),
}


def find_attention(
    jobs: Sequence[LiveJob],
    nodes: Sequence[NodeState],
    clusters: Sequence[ClusterState],
    hooks: Sequence[FailingHook],
) -> list[Attention]:
    """Return everything that needs a person, the most urgent first."""
    found = [*_of_clusters(clusters), *_of_nodes(nodes), *_of_jobs(jobs), *_of_hooks(hooks)]
    order = list(AttentionKind)
    return sorted(found, key=lambda each: order.index(each.kind))


def _of_clusters(clusters: Sequence[ClusterState]) -> Iterator[Attention]:
    for each in clusters:
        if each.problem:
            message = f"Cluster {each.name} does not answer: {each.problem}"
            remedy = "Check the cluster and the connection to it. Its jobs continue to run."
            yield Attention(AttentionKind.CLUSTER_SILENT, message, remedy, cluster=each.name)


def _of_nodes(nodes: Sequence[NodeState]) -> Iterator[Attention]:
    for state in nodes:
        if state.node is not None and state.status in _NODES:
            kind, remedy = _NODES[state.status]
            yield Attention(kind, f"Node {state.name} is {state.closed_reason}", remedy, node=state.name)


def _of_jobs(jobs: Sequence[LiveJob]) -> Iterator[Attention]:
    for job in jobs:
        if not job.conditions:
            continue
        for condition in job.conditions:
            status, kind, remedy = _CONDITIONS.get(condition.type, (None, None, ""))
            if kind is not None and condition.status is status:
                yield Attention(kind, f"Job {job.name}: {condition.message}", remedy, job=job)
        waits = job.condition(PLACEABLE)
        if job.state is JobState.QUEUED and waits is not None and not waits.status and waits.reason in _NEVER_PLACED:
            message = f"Job {job.name} cannot be placed: {waits.message}"
            yield Attention(AttentionKind.JOB_UNPLACEABLE, message, _NEVER_PLACED[waits.reason], job=job)


def _of_hooks(hooks: Sequence[FailingHook]) -> Iterator[Attention]:
    for hook in hooks:
        message = f"Hook {hook.name or hook.id} of project {hook.project} fails: {hook.error}"
        remedy = "Check its receiver, then deliver again; or disable the hook."
        yield Attention(AttentionKind.HOOK_FAILING, message, remedy, hook=hook)
