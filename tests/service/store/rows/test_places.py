"""Stored places of ranks, as a list and as a compressed map."""

from typing import Any

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.rank_map import RankMap
from regroup.service.store.rows.places import read_places

PLACES = [RankPlace(rank, f"id-{rank // 2}", f"n{rank // 2}", "h", rank % 2, rank % 2) for rank in range(4)]


def test_both_forms_have_the_same_places() -> None:
    listed = [vars(place) for place in PLACES]
    assert read_places(listed) is listed
    found = read_places(RankMap.of(PLACES).to_json())
    assert list(found) == listed and len(found) == 4
    assert found[1] == listed[1] and found[1:3] == listed[1:3]


@pytest.mark.parametrize("damaged", [None, 7, {}, {"count": 1, "nodes": "x", "columns": "y"}])
def test_a_damaged_map_has_no_places(damaged: Any) -> None:
    assert list(read_places(damaged)) == []
