"""Who holds whose snapshots: never oneself, and somebody of another domain as long as that can be."""

import itertools
from collections import Counter

import pytest

from regroup.service.policy.recovery.mirror_pairs import PairingNode, pair_nodes, pause_s


def members(*domains: tuple[str, ...]) -> list[PairingNode]:
    return [PairingNode(f"n{number}", domain) for number, domain in enumerate(domains)]


def test_a_single_node_has_none() -> None:
    assert pair_nodes([]) == {}
    assert pair_nodes(members(())) == {}


@pytest.mark.parametrize("count", range(2, 12))
def test_every_node_holds_one_mirror_and_never_its_own(count: int) -> None:
    held = pair_nodes(members(*[()] * count))
    assert len(held) == count
    assert all(node != holder for node, holder in held.items())
    assert set(Counter(held.values()).values()) == {1}


@pytest.mark.parametrize("count", range(2, 12))
def test_few_pairs_of_nodes_take_a_mirror_along(count: int) -> None:
    """Pairs, and one ring of three where the number is odd: a ring of all would have as many as nodes."""
    held = pair_nodes(members(*[()] * count))
    fatal = [both for both in itertools.combinations(held, 2) if held[both[0]] == both[1] or held[both[1]] == both[0]]
    assert len(fatal) == (count // 2 if count % 2 == 0 else count // 2 + 2)


@pytest.mark.parametrize(
    "sizes", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 2, 2), (1, 2, 3), (4, 2, 2), (3, 2, 2), (2, 2, 1)]
)
def test_no_domain_takes_a_node_and_its_mirror(sizes: tuple[int, ...]) -> None:
    """Whatever order the nodes come in, as long as no domain has more than half of them."""
    nodes = [
        PairingNode(f"n{rack}{index}", (f"rack{rack}",)) for rack, size in enumerate(sizes) for index in range(size)
    ]
    rack = {node.node_id: node.domain for node in nodes}
    assert all(rack[node] != rack[holder] for node, holder in pair_nodes(nodes).items())
    assert pair_nodes(list(reversed(nodes))) == pair_nodes(nodes)


def test_the_larger_domain_is_avoided_first() -> None:
    nodes = members(("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"))
    zone = {node.node_id: node.domain[0] for node in nodes}
    assert all(zone[node] != zone[holder] for node, holder in pair_nodes(nodes).items())


def test_sending_takes_its_share_of_the_time() -> None:
    for share in (0.01, 0.02, 0.5, 1.0):
        rest = pause_s(2.0, share)
        assert 2.0 / (2.0 + rest) == pytest.approx(share)
