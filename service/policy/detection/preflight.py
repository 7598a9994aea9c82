"""Decide which nodes of a job are unfit, from the checks before ranks start. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.policy.recovery.classify import Cause

LINK = "link"
"""Finding that involves another node: the fault of one of the two must be determined."""
MAX_PEERS = 32
"""Maximum number of peers that a node checks if links are suspected: a larger job does not test every pair."""


@dataclass(frozen=True)
class Finding:
    """One problem that a node found, with itself or with the connection to a peer."""

    node_id: str
    what: str
    """`device`, `memory`, `scratch` or `link`."""
    message: str
    peer: str = ""
    """For a link: the peer that cannot be reached."""


@dataclass(frozen=True)
class UnfitNode:
    """A node with a problem."""

    node_id: str
    fault: NodeEventKind
    message: str
    is_excluded: bool
    """True if the job continues without the node; otherwise another node is excluded and this one is only recorded."""


def may_be_link_failure(cause: Cause) -> bool:
    """Return True if the cause can be a failed link between two nodes: ranks wait for each other, or lost a connection
    without a process death."""
    return cause.reason is Reason.HANG or (
        cause.failure is not None and cause.failure.error_class in ("collateral", "io")
    )


def assign_probe_peers(node_ids: Sequence[str], most: int = 1) -> Mapping[str, tuple[str, ...]]:
    """Return node → peers that it must reach: the next `most` nodes in a ring."""
    count = min(most, len(node_ids) - 1)
    if count < 1:
        return {}
    twice = [*node_ids, *node_ids]
    return {node: tuple(twice[n + 1 : n + 1 + count]) for n, node in enumerate(node_ids)}


def find_unfit_nodes(findings: Sequence[Finding], peers: Mapping[str, Sequence[str]]) -> tuple[UnfitNode, ...]:
    """Return the unfit nodes in the order of the findings.

    A broken link counts against both its ends. The node with more broken links is excluded, else the far end. If one
    end is unfit anyway, or has no working link while the other has, that end is at fault.

    Args:
        peers: node → peers that it had to reach.
    """
    own: dict[str, list[str]] = {}
    for finding in findings:
        if finding.what != LINK:
            own.setdefault(finding.node_id, []).append(finding.message)
    found = {
        node: UnfitNode(node, NodeEventKind.PREFLIGHT, "; ".join(messages), True) for node, messages in own.items()
    }
    broken = {
        (finding.node_id, finding.peer): finding.message
        for finding in findings
        if finding.what == LINK and not own.keys() & {finding.node_id, finding.peer}
    }
    for ends, message in broken.items():
        cut_off = [end for end in ends if _is_cut_off(end, broken, peers)]
        if len(cut_off) == 1:
            found.setdefault(cut_off[0], UnfitNode(cut_off[0], NodeEventKind.PREFLIGHT, message, True))
    left = {ends: message for ends, message in broken.items() if not found.keys() & set(ends)}
    while left:
        count = Counter(end for ends in left for end in ends)
        near, far = next(iter(left))
        worst = max((far, near, *count), key=count.__getitem__)
        for ends in [ends for ends in left if worst in ends]:
            message = left.pop(ends)
            if not (worst in found and found[worst].is_excluded):
                found[worst] = UnfitNode(worst, NodeEventKind.LINK, message, True)
            for end in ends:
                found.setdefault(end, UnfitNode(end, NodeEventKind.LINK, message, False))
    return tuple(found.values())


def _is_cut_off(node: str, broken: Mapping[tuple[str, str], str], peers: Mapping[str, Sequence[str]]) -> bool:
    """Return True if no link to or from the node works."""
    tried = [(one, other) for one, others in peers.items() for other in others if node in (one, other)]
    return len({end for ends in tried for end in ends}) > 2 and all(ends in broken for ends in tried)
