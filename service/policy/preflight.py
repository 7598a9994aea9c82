"""Which nodes of a job are not to be used, from what each of them found before ranks start. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.policy.health import Happening

LINK = "link"
"""A finding about another node as well: who of the two is at fault is to be judged."""


@dataclass(frozen=True)
class Finding:
    """One thing that a node found wrong, with itself or on the way to its peer."""

    node_id: str
    what: str
    """`device`, `memory`, `scratch` or `link`."""
    message: str


@dataclass(frozen=True)
class Unfit:
    """A node that something speaks against."""

    node_id: str
    fault: Happening
    message: str
    is_given_up: bool
    """The job goes on without it; else another node is given up, and this one is only remembered."""


def ring(node_ids: Sequence[str]) -> Mapping[str, str]:
    """Node → the one that it is to reach: each reaches one and is reached by one."""
    if len(node_ids) < 2:
        return {}
    return dict(zip(node_ids, [*node_ids[1:], node_ids[0]], strict=True))


def judge(findings: Sequence[Finding], peers: Mapping[str, str]) -> tuple[Unfit, ...]:
    """Who is unfit, in the order of the findings.

    A broken link speaks against both its ends, and the far one is given up; unless one of them is unfit anyway, or one
    has no link left while the other has: then that one is at fault.
    """
    own: dict[str, list[str]] = {}
    for finding in findings:
        if finding.what != LINK:
            own.setdefault(finding.node_id, []).append(finding.message)
    found = {node: Unfit(node, Happening.PREFLIGHT, "; ".join(said), True) for node, said in own.items()}
    broken = {finding.node_id: finding.message for finding in findings if finding.what == LINK}
    for node, message in broken.items():
        ends = (node, peers[node])
        if any(end in own for end in ends):
            continue
        cut_off = [end for end in ends if _is_cut_off(end, broken, peers)]
        if len(cut_off) == 1 and len(peers) > 2:
            found.setdefault(cut_off[0], Unfit(cut_off[0], Happening.PREFLIGHT, message, True))
            continue
        is_settled = any(end in found and found[end].is_given_up for end in ends)
        found.setdefault(ends[1], Unfit(ends[1], Happening.LINK, message, not is_settled))
        found.setdefault(node, Unfit(node, Happening.LINK, message, False))
    return tuple(found.values())


def _is_cut_off(node: str, broken: Mapping[str, str], peers: Mapping[str, str]) -> bool:
    """It reaches nobody, and nobody reaches it."""
    return node in broken and any(peers[other] == node for other in broken)
