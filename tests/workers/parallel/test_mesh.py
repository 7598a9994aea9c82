"""Coordinates of ranks, and meshes with the fewest axes."""

import pytest

from regroup.workers.parallel.mesh import Alike, Place, alike_in, build_mesh, data_place, layout_hash, meshes_of
from tests.support.machines.one_rank import one_rank


@pytest.mark.parametrize(("is_sharded", "axis"), [(True, "dp_shard"), (False, "dp_replicate")])
def test_a_layout_of_one_rank_has_one_data_axis(is_sharded: bool, axis: str) -> None:
    with one_rank():
        meshes = meshes_of({}, "cpu", sharded=is_sharded)
        assert meshes.data.mesh_dim_names == (axis,)
        assert (meshes.data.size(), meshes.tensor, meshes.pipeline, meshes.is_sharded) == (1, None, None, is_sharded)
        assert build_mesh({"tp": 1}, "cpu").mesh_dim_names == ("dp_shard",)


def test_ranks_that_differ_in_tp_or_pp_receive_the_same_samples_and_one_counts_them() -> None:
    layout = {"pp": 2, "dp_shard": 3, "tp": 2}
    places = [data_place(layout, rank) for rank in range(12)]
    assert [place.index for place in places] == [0, 0, 1, 1, 2, 2] * 2
    assert {place.degree for place in places} == {3}
    assert [rank for rank, place in enumerate(places) if place.speaks] == [0, 2, 4]
    assert data_place({}, 0) == Place(0, 1)


def test_ranks_of_a_stage_hold_equal_copies_of_what_is_not_sharded() -> None:
    assert [alike_in({"pp": 2, "dp_shard": 2}, rank, 4) for rank in range(4)] == [
        Alike(0, 2), Alike(1, 2), Alike(0, 2), Alike(1, 2),
    ]  # fmt: skip
    assert alike_in({}, 2, 3) == Alike(2, 3)


def test_a_layout_has_one_hash_in_any_order() -> None:
    assert layout_hash({"tp": 2, "pp": 3}) == layout_hash({"pp": 3, "tp": 2}) != layout_hash({"tp": 3, "pp": 2})
    assert len(layout_hash({})) == 16
