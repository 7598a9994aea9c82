"""Which nodes of a job are not to be used, from what each of them found before ranks start. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.policy.recovery.classify import Cause

LINK = "link"
"""A finding about another node as well: who of the two is at fault is to be judged."""
MAX_PEERS = 32
"""That one node is to reach where links are doubted: of a larger job not every pair is tried."""


@dataclass(frozen=True)
class Finding:
    """One thing that a node found wrong, with itself or on the way to a peer."""

    node_id: str
    what: str
    """`device`, `memory`, `scratch` or `link`."""
    message: str
    peer: str = ""
    """Of a link: whom it does not reach."""


@dataclass(frozen=True)
class UnfitNode:
    """A node that something speaks against."""

    node_id: str
    fault: NodeEventKind
    message: str
    is_excluded: bool
    """The job goes on without it; else another node is given up, and this one is only remembered."""


def may_be_link_failure(cause: Cause) -> bool:
    """Whether two nodes that no longer reach each other would look like this: ranks wait for each other, or have lost
    a connection and nobody died."""
    return cause.reason is Reason.HANG or (
        cause.failure is not None and cause.failure.error_class in ("collateral", "io")
    )


def assign_probe_peers(node_ids: Sequence[str], most: int = 1) -> Mapping[str, tuple[str, ...]]:
    """Node → whom it is to reach: the next `most` ones in a ring, so that each is reached by as many."""
    count = min(most, len(node_ids) - 1)
    if count < 1:
        return {}
    twice = [*node_ids, *node_ids]
    return {node: tuple(twice[n + 1 : n + 1 + count]) for n, node in enumerate(node_ids)}


def find_unfit_nodes(findings: Sequence[Finding], peers: Mapping[str, Sequence[str]]) -> tuple[UnfitNode, ...]:
    """Who is unfit, in the order of the findings. `peers`: whom each node was to reach.

    A broken link speaks against both its ends, and the one that has more of them is given up, else the far one; unless
    one of them is unfit anyway, or has no link left while the other has: then that one is at fault.
    """
    own: dict[str, list[str]] = {}
    for finding in findings:
        if finding.what != LINK:
            own.setdefault(finding.node_id, []).append(finding.message)
    found = {node: UnfitNode(node, NodeEventKind.PREFLIGHT, "; ".join(said), True) for node, said in own.items()}
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
    """It was to reach others or be reached by them, and nothing of that works."""
    tried = [(one, other) for one, others in peers.items() for other in others if node in (one, other)]
    return len({end for ends in tried for end in ends}) > 2 and all(ends in broken for ends in tried)
