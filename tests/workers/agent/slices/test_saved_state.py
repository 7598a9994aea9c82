"""The catalog of a saved state for a rank, and the release of the state at its end."""

import numpy as np
import pytest

from tests.workers.agent.slices.mesh_state import MeshReader, state_of
from tests.workers.state.slices.saved_meshes import Mesh, SavedMesh


@pytest.fixture
def saved() -> SavedMesh:
    return SavedMesh({"w": np.zeros((4, 3), dtype="float32")}, Mesh(((0, 2),), 1))


async def test_as_many_ranks_as_before_get_their_own_facts(saved: SavedMesh) -> None:
    catalog = state_of(saved, 0, MeshReader(saved)).catalog(1, 2)
    tensors = {"w": ("float32", (4, 3))}
    assert catalog == {
        "tensors": tensors,
        "facts": {"rank": 1, "random": 1},
        "world_size": 2,
        "layout_hash": "h",
    }


async def test_another_number_of_ranks_gets_the_facts_of_rank_0_without_its_random_state(saved: SavedMesh) -> None:
    state = state_of(saved, 0, MeshReader(saved))
    assert [state.catalog(rank, 3)["facts"] for rank in range(3)] == [{"rank": 0}] * 3
    assert state.facts[0] == {"rank": 0, "random": 0}, "the state itself is not changed"


async def test_the_end_releases_the_memory_and_the_reader(saved: SavedMesh) -> None:
    reader = MeshReader(saved)
    state = state_of(saved, 0, reader)
    assert list(state.near) == [(0, 0)] and not reader.is_closed.is_set()
    state.close()
    assert not state.near and reader.is_closed.is_set()
