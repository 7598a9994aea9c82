"""Pair nodes that hold each other's snapshots, and limit the transfer rate. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PairingNode:
    """A node of a job, with its place in the topology."""

    node_id: str
    domain: tuple[str, ...] = ()
    """Names of its failure domains, the largest first."""


def pair_nodes(members: Sequence[PairingNode]) -> Mapping[str, str]:
    """Return node → node that holds its mirror; empty for a single node.

    Nodes hold each other's snapshots in pairs; with an odd number, three nodes form a ring. Among all pairings, this
    one loses a mirror with the fewest pairs of simultaneous node losses. Sorted by domain and folded in the middle, no
    pair shares a domain while no domain has more than half of the nodes.
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
    """Return the pause after a transfer, so that transfers take at most `share` of the time."""
    return took_s * (1 - share) / share
