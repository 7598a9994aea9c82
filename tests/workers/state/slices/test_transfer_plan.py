"""Plans as values."""

import numpy as np

from regroup.workers.state.slices.boxes import Region
from regroup.workers.state.slices.planner import plan_transfers
from regroup.workers.state.slices.transfer_plan import HolderTransfer, RankTransfer
from tests.workers.state.slices.saved_meshes import Mesh, SavedMesh, table_of


def test_a_plan_lists_copies_fetches_and_passes_of_every_tensor() -> None:
    tensors = {"a": np.arange(4.0), "b": np.arange(4.0)}
    saved = SavedMesh(tensors, Mesh(((0, 2),), 1))
    whole = Mesh(((None, 2),), 2)
    needed = {rank: table_of(tensors, whole, rank, gap=4 + rank)[0] for rank in range(2)}
    plan = plan_transfers(saved.held, needed, near=saved.near(0))
    assert list(plan.copies()) == [
        HolderTransfer(Region(8, 16), 0, Region(4, 16), (0, 0)),
        HolderTransfer(Region(32, 16), 0, Region(40, 16), (0, 0)),
        HolderTransfer(Region(8, 16), 1, Region(5, 16), (0, 0)),
        HolderTransfer(Region(32, 16), 1, Region(42, 16), (0, 0)),
    ]
    assert list(plan.fetches()) == [
        HolderTransfer(Region(8, 16), 0, Region(20, 16), (1, 1)),
        HolderTransfer(Region(32, 16), 0, Region(56, 16), (1, 1)),
    ]
    assert list(plan.passes()) == [
        RankTransfer(Region(20, 16), 1, Region(21, 16), 0),
        RankTransfer(Region(56, 16), 1, Region(58, 16), 0),
    ]
    assert (plan.fetched_bytes, plan.minimum_bytes, plan.copied_bytes) == (32, 32, 96)
    assert plan.bytes_by_holder == {(1, 1): 32}
