"""Rings of ranks, and rounds of node pairs in which every node appears at most once."""

from itertools import combinations

import pytest

from regroup.workers.probe.rank_map import RankMap, rounds


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 12])
def test_every_pair_of_nodes_meets_once_and_no_node_twice_in_a_round(nodes: int) -> None:
    found = rounds(nodes, 10_000)
    assert sorted(pair for meeting in found for pair in meeting) == list(combinations(range(nodes), 2))
    for meeting in found:
        met = [node for pair in meeting for node in pair]
        assert len(met) == len(set(met)) == nodes // 2 * 2


def test_of_a_large_cluster_every_node_meets_some_and_none_more_than_others() -> None:
    found = rounds(500, 2_000)
    assert 1_500 < sum(map(len, found)) <= 2_000
    met = [node for meeting in found for pair in meeting for node in pair]
    assert {met.count(node) for node in range(500)} == {len(found)}


def test_a_single_node_has_no_pairs() -> None:
    assert [pair for meeting in rounds(1, 10) for pair in meeting] == []


def test_devices_meet_those_at_the_same_place_of_the_other_node() -> None:
    ground = RankMap.of([0, 0, 0, 1, 1, 2, 2, 2])
    assert ground.nodes == ((0, 1, 2), (3, 4), (5, 6, 7)) and ground.lanes == 2
    assert [ground.partner(rank, [(0, 2)]) for rank in range(8)] == [5, 6, None, None, None, 0, 1, None]


def test_rings_go_through_all_ranks_or_those_of_a_node() -> None:
    ground = RankMap.of([0, 1, 0, 2])
    assert [ground.ring(rank, inside=False) for rank in range(4)] == [(3, 2), (2, 3), (0, 1), (1, 0)]
    assert [ground.ring(rank, inside=True) for rank in range(4)] == [(2, 2), None, (0, 0), None]
