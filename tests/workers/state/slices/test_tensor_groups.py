"""Groups of tensors that share a plan."""

from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.slices.tensor_groups import TensorGroups


def box(first: int, count: int, size: int = 8) -> TensorBox:
    return TensorBox("float32", 4, (size,), Box((first,), (count,)))


def table(first: int, *names: str) -> BoxTable:
    return BoxTable.of([(name, box(first, 4), 16 * number) for number, name in enumerate(names)])


def test_tensors_in_the_same_boxes_of_all_tables_are_one_group() -> None:
    tables = [table(0, "a", "b"), table(4, "a", "b"), table(0, "c")]
    groups = TensorGroups(tables)
    a, b, c = (groups.signatures[name] for name in "abc")
    assert a == b != c
    assert groups.tables_of(a) == [(0, 0), (1, 0)] and groups.tables_of(c) == [(2, 0)]
    assert groups.tables_among([1, 2], a) == [(1, 0)]
    assert groups.rows(0, ["b", "a"]) == [1, 0]


def test_a_tensor_in_other_boxes_is_another_group() -> None:
    tables = [BoxTable.of([("a", box(0, 4), 0), ("b", box(0, 8), 16)]), table(4, "a")]
    groups = TensorGroups(tables)
    assert groups.signatures["a"] != groups.signatures["b"]
    assert groups.tables_of(groups.signatures["a"]) == [(0, 0), (1, 0)]
    assert groups.tables_of(groups.signatures["b"]) == [(0, 1)]
