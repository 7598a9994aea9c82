"""Tables of boxes as values and as plain data."""

import json
from typing import Any

import pytest

from regroup.workers.state.slices.box_table import BoxTable, TensorBox, packed, unpacked
from regroup.workers.state.slices.boxes import Box

FIRST = TensorBox("float32", 4, (4, 2), Box((2, 0), (2, 2)))
OTHER = TensorBox("int64", 8, (), Box((), ()))
ROWS = [("a", FIRST, 64), ("b", OTHER, 0), ("c", FIRST, 80)]


def test_equal_boxes_are_stored_once_and_survive_the_wire() -> None:
    table = BoxTable.of(ROWS)
    assert table.boxes == (FIRST, OTHER) and (FIRST.size_bytes, OTHER.size_bytes) == (16, 8)
    assert list(table.rows()) == ROWS
    data = json.loads(json.dumps(table.to_json()))
    assert BoxTable.from_json(data) == table
    assert unpacked(packed(table.to_json())) == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a"]}, "1 names, 3 numbers and 3 positions"),
        ({"numbers": [0, 1, 2]}, "no box"),
        ({"numbers": [0, -1, 0]}, "no box"),
        ({"starts": [0, -8, 0]}, "below 0"),
        ({"boxes": [["float32", 4, [4, 2], [3, 0], [2, 2]]] * 2}, "not a part of its tensor"),
        ({"boxes": [["float32", 4, [4, 2], [3], [2, 2]]] * 2}, "different dimensions"),
        ({"boxes": [["float32", 0, [4], [0], [2]]] * 2}, "not a part of its tensor"),
        ({"boxes": 5}, "TypeError"),
    ],
)
def test_damaged_tables_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoxTable.from_json({**BoxTable.of(ROWS).to_json(), **change})


def test_damaged_and_endless_data_is_refused() -> None:
    with pytest.raises(ValueError, match="not compressed JSON"):
        unpacked(b"no")
    with pytest.raises(ValueError, match="more than 100 bytes"):
        unpacked(packed({"a": "0" * 1000}), 100)
