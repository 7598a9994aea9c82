"""Boxes of a saved state with their holders."""

from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.slices.held_state import HeldBox, HeldState
from regroup.workers.state.slices.planner import plan_transfers


def held(name: str, first: int, holder: str, start: int) -> HeldBox:
    return HeldBox(name, "int32", 4, (6,), (first,), (2,), holder, start)


def test_single_boxes_are_held_also_if_a_file_has_several_of_a_tensor() -> None:
    state = HeldState.of([held("a", 0, "x", 100), held("a", 4, "x", 200), held("a", 2, "y", 0), held("b", 0, "y", 8)])
    assert state.tensors() == {"a": ("int32", (6,)), "b": ("int32", (6,))}
    needed = BoxTable.of([("a", TensorBox("int32", 4, (6,), Box((1,), (5,))), 64)])
    plan = plan_transfers(state, {7: needed}, near=["y"])
    assert sorted((each.holder, each.source.offset, each.target.offset) for each in plan.fetches()) == [
        ("x", 104, 64), ("x", 200, 76),
    ]  # fmt: skip
    assert [(each.holder, each.source.offset, each.target.offset) for each in plan.copies()] == [("y", 0, 68)]
    assert plan.bytes_by_holder == {"x": 12}


def test_boxes_of_another_type_or_shape_do_not_count() -> None:
    state = HeldState.of([held("a", 0, "x", 0), HeldBox("a", "int16", 2, (6,), (0,), (2,), "y", 0)])
    signature = state.groups.signatures["a"]
    requested = TensorBox("int16", 2, (6,), Box((0,), (2,)))
    found, rest = state.index(signature, requested.form).cover([requested.box])
    assert [[state.holders[owner] for owner in owners] for _, _, owners in found] == [["y"]] and rest == []
    assert state.index_at(["x"], signature, requested.form).cover([requested.box]) == ([], [requested.box])
    assert state.index(signature, requested.form) is state.index(signature, requested.form)
