"""Pairs of nodes that mirror each other's snapshots, in different domains if possible."""

import itertools
from collections import Counter

import pytest

from regroup.service.policy.recovery.mirror_pairs import PairingNode, pair_nodes, pause_s


def members(*domains: tuple[str, ...]) -> list[PairingNode]:
    return [PairingNode(f"n{number}", domain) for number, domain in enumerate(domains)]


def test_a_single_node_has_no_mirror() -> None:
    assert pair_nodes([]) == {}
    assert pair_nodes(members(())) == {}


@pytest.mark.parametrize("count", range(2, 12))
def test_every_node_has_one_mirror_of_another_node(count: int) -> None:
    holders = pair_nodes(members(*[()] * count))
    assert len(holders) == count
    assert all(node != holder for node, holder in holders.items())
    assert set(Counter(holders.values()).values()) == {1}


@pytest.mark.parametrize("count", range(2, 12))
def test_few_pairs_of_nodes_are_fatal_if_both_are_lost(count: int) -> None:
    """Use pairs, and one ring of three for an odd number. A ring of all nodes would have a fatal pair per node."""
    holders = pair_nodes(members(*[()] * count))
    fatal = [
        both
        for both in itertools.combinations(holders, 2)
        if holders[both[0]] == both[1] or holders[both[1]] == both[0]
    ]
    assert len(fatal) == (count // 2 if count % 2 == 0 else count // 2 + 2)


@pytest.mark.parametrize(
    "sizes", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 2, 2), (1, 2, 3), (4, 2, 2), (3, 2, 2), (2, 2, 1)]
)
def test_no_domain_contains_a_node_and_its_mirror(sizes: tuple[int, ...]) -> None:
    """Separate them for any order of nodes, if no domain has more than half of the nodes."""
    nodes = [
        PairingNode(f"n{rack}{index}", (f"rack{rack}",)) for rack, size in enumerate(sizes) for index in range(size)
    ]
    rack = {node.node_id: node.domain for node in nodes}
    assert all(rack[node] != rack[holder] for node, holder in pair_nodes(nodes).items())
    assert pair_nodes(list(reversed(nodes))) == pair_nodes(nodes)


def test_different_outer_domains_take_precedence() -> None:
    nodes = members(("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"))
    zone = {node.node_id: node.domain[0] for node in nodes}
    assert all(zone[node] != zone[holder] for node, holder in pair_nodes(nodes).items())


def test_sending_uses_its_share_of_the_time() -> None:
    for share in (0.01, 0.02, 0.5, 1.0):
        rest = pause_s(2.0, share)
        assert 2.0 / (2.0 + rest) == pytest.approx(share)
