"""The compact map of ranks: equal to the places that it was made of, small, and searched by node."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.rank_map import RankMap, RanksOfNode

NODES = st.sampled_from([(f"id-{number}", f"node-{number}", f"10.0.0.{number}") for number in range(5)])
PLACES = st.lists(st.tuples(NODES, st.integers(0, 15), st.integers(-1, 63))).map(
    lambda drawn: tuple(
        RankPlace(rank, *node, local_rank, device) for rank, (node, local_rank, device) in enumerate(drawn)
    )
)


@given(PLACES)
def test_a_map_has_the_places_that_it_was_made_of(places: tuple[RankPlace, ...]) -> None:
    found = RankMap.of(places)
    assert tuple(found) == places and len(found) == len(places)
    assert [node.node_id for node in found.nodes] == list(dict.fromkeys(place.node_id for place in places))
    for node_id in {place.node_id for place in places} | {"none"}:
        here = tuple(place for place in places if place.node_id == node_id)
        assert found.on(node_id) == here
        columns = tuple(tuple(getattr(place, name) for place in here) for name in ("rank", "local_rank", "device"))
        assert found.ranks_on(node_id) == RanksOfNode(*columns)
    assert RankMap.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found[1:3] == places[1:3] and (not places or found[-1] == places[-1])


def big_map(nodes: int, ranks_per_node: int) -> RankMap:
    return RankMap.of(
        RankPlace(
            node * ranks_per_node + local, f"{node:056x}", f"gpu-node-{node}.cluster.local", "10.1.2.3", local, local
        )
        for node in range(nodes)
        for local in range(ranks_per_node)
    )


def test_a_record_of_16384_ranks_is_a_tenth_of_its_places() -> None:
    found = big_map(2048, 8)
    size = len(json.dumps(found.to_json()))
    assert size < 300_000
    as_places = len(json.dumps([vars(place) for place in found]))
    assert as_places > 2_500_000 and size < as_places / 8


def test_a_map_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, compressed = big_map(2, 4), list[int]()
    compress = zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data: compressed.append(len(data)) or compress(data))
    first, second = found.to_json(), found.to_json()
    assert first == second and first is not second
    assert len(compressed) == 2, "nodes and columns, once each"


def test_a_search_by_node_reads_the_map_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, made = big_map(64, 8), 0
    place = RankMap._place

    def counted(self: RankMap, position: int) -> RankPlace:
        nonlocal made
        made += 1
        return place(self, position)

    monkeypatch.setattr(RankMap, "_place", counted)
    assert sum(len(found.on(node.node_id)) for node in found.nodes) == 512
    assert made == 512


NO_NODES = RankMap.of(()).to_json()["nodes"]


@pytest.mark.parametrize(
    "change", [{"columns": "AAAA"}, {"count": 3}, {"count": -1}, {"nodes": NO_NODES}, {"columns": "not base64"}]
)
def test_damaged_data_is_refused(change: dict[str, object]) -> None:
    data = big_map(2, 2).to_json()
    with pytest.raises(ValueError, match=r"rank map|base64|padding|characters"):
        RankMap.from_json({**data, **change})
