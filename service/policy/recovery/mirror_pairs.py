"""Which node holds whose snapshots, and how often a set is sent there. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PairingNode:
    """A node of a job, and where it stands."""

    node_id: str
    domain: tuple[str, ...] = ()
    """Names of the failure domains it is in, the largest first: what one of them takes down goes together."""


def pair_nodes(members: Sequence[PairingNode]) -> Mapping[str, str]:
    """Node → the node that holds its mirror; empty for a single node.

    Nodes hold each other's in pairs, three of an odd number in a ring: of all ways this leaves the fewest two nodes
    whose loss at once takes a mirror along. Sorted by domain and folded in the middle, no pair shares a domain as long
    as none has more than half of the nodes.
    """
    nodes = [member.node_id for member in sorted(members, key=lambda member: (member.domain, member.node_id))]
    half = len(nodes) // 2
    held: dict[str, str] = {}
    for first, second in zip(nodes[:half], nodes[half : 2 * half], strict=True):
        held[first], held[second] = second, first
    if half and len(nodes) % 2:
        first, second, third = nodes[0], nodes[half], nodes[-1]
        held |= {first: second, second: third, third: first}
    return held


def pause_s(took_s: float, share: float) -> float:
    """Pause after a set took so long to send, so that sending takes no more than `share` of the time."""
    return took_s * (1 - share) / share
