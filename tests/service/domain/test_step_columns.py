"""Steps survive their way through columns, and each value of a wrong type is found."""

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.job_events import encode
from regroup.service.domain.step_columns import StepColumns, find_malformed, split_steps, step_key
from regroup.service.ports.sync import SupervisorEvent
from regroup.workers.contract.codec import build, plain
from regroup.workers.contract.messages import StepRow
from tests.support.inputs.step_columns import columns_of

ROW = StepRow(1, 2, 1002.0, 0.5, 2.0, 64, 4, 2**63 + 2, 1e-3, None, 2.5, 0.01, {"mfu": 0.4})
FLOATS = st.none() | st.floats(allow_nan=False)
COUNTS = st.none() | st.integers(0, 2**64 - 1)
ROWS = st.builds(
    StepRow, st.integers(0, 3), st.integers(0, 99), st.floats(0, 1e9), FLOATS, FLOATS, COUNTS, COUNTS, COUNTS, FLOATS,
    FLOATS, FLOATS, st.floats(0, 1e9), st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
)  # fmt: skip


def event(seq: int, row: StepRow, **fields: Any) -> SupervisorEvent:
    usual = {"key": step_key(row.generation, row.step), "type": "step", "data": encode(row)}
    return SupervisorEvent(**{"seq": seq, "generation": row.generation, "time_s": row.time_s, **usual, **fields})


def test_columns_are_the_fields_of_a_step() -> None:
    names = [each.name for each in fields(StepRow)]
    assert [each.name for each in fields(StepColumns)] == ["seq", *names[:-1], "metrics", "extra"]
    assert names[-1] == "extra"


@given(st.lists(ROWS, max_size=6))
def test_steps_survive_columns_and_json(rows: list[StepRow]) -> None:
    steps = build(StepColumns, json.loads(json.dumps(plain(columns_of(rows)))))
    assert len(steps) == len(rows)
    assert [steps.row(place) for place in range(len(steps))] == [encode(row) for row in rows]
    assert find_malformed(steps) == {}


def test_metrics_of_the_same_names_are_columns() -> None:
    other = StepRow(1, 3, 1003.0, None, None, None, None, None, None, None, extra={"mfu": 0.5})
    assert (columns_of([ROW, other]).metrics, columns_of([ROW, other]).extra) == ({"mfu": [0.4, 0.5]}, [])
    bare = StepRow(1, 4, 1003.0, None, None, None, None, None, None, None)
    assert (columns_of([ROW, bare]).metrics, columns_of([ROW, bare]).extra) == ({}, [{"mfu": 0.4}, {}])
    assert (columns_of([bare, bare]).metrics, columns_of([bare, bare]).extra) == ({}, [])


def test_steps_are_ordered_by_their_numbers_and_others_stay_events() -> None:
    later, note = event(9, ROW), SupervisorEvent(7, "note:1", "note", 1, 5.0, {"kind": "x"})
    steps, others = split_steps([later, note, event(4, ROW)])
    assert steps.seq == [4, 9] and others == [note]


def test_a_step_without_a_required_value_stays_an_event() -> None:
    without = event(1, ROW, data={name: value for name, value in encode(ROW).items() if name != "loss"})
    assert split_steps([without]) == (StepColumns(), [without])
    optional = event(3, ROW, data={name: value for name, value in encode(ROW).items() if name != "stall_s"})
    newer = event(4, ROW, data={**encode(ROW), "unknown": 1})
    steps, others = split_steps([optional, newer])
    assert steps.stall_s == [0.0, 0.01] and others == []


def test_steps_are_selected_by_place_and_by_number() -> None:
    steps, _ = split_steps([event(seq, ROW) for seq in (3, 5, 8)])
    assert steps.after(2) is steps and steps.select(range(3)) is steps
    assert steps.after(3).seq == [5, 8] and steps.after(8) == StepColumns(metrics={"mfu": []})
    assert steps.select([2, 0]).seq == [8, 3] and steps.select([2, 0]).after(0).seq == [3, 8]


class Measured(float):
    """A float of a library."""


@pytest.mark.parametrize(
    ("name", "value", "is_sound"),
    [
        ("step", "x", False), ("step", 2.0, False), ("step", True, False), ("step", None, False),
        ("time_s", None, False), ("loss", "low", False), ("loss", 2, True), ("loss", None, True),
        ("loss", math.nan, True), ("tokens", 1.5, False),
        ("loss", Measured(2.0), True), ("stall_s", None, False), ("stall_s", False, False), ("extra", [1], False),
        ("extra", None, False), ("extra", {"mfu": "high"}, True),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_found_at_its_place(name: str, value: Any, is_sound: bool) -> None:
    data = {**encode(ROW), name: value}
    key = step_key(data["generation"], data["step"])
    steps, _ = split_steps([event(1, ROW), event(2, ROW, key=key, data=data), event(3, ROW)])
    assert len(steps) == 3
    assert list(find_malformed(steps)) == ([] if is_sound else [1])
