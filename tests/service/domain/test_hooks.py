"""Hooks: names of events, the size of their data, and damaged rows."""

import json

import pytest

from regroup.service.domain.hooks import (
    DEFAULT_EVENTS,
    EVENT_TYPES,
    MAX_DATA_BYTES,
    HookEvent,
    is_event_filter,
    limit_data,
)
from regroup.service.domain.job_events import EventType


def test_each_recorded_type_of_a_supervisor_can_be_selected() -> None:
    not_recorded = {EventType.STEP, EventType.REPORT, EventType.MIRROR}  # of them only the newest state is stored
    assert {each.value for each in EventType if each not in not_recorded} <= EVENT_TYPES


@pytest.mark.parametrize("value", ["state", "incident", "state:FAILED", *DEFAULT_EVENTS])
def test_an_event_and_a_state_are_filters(value: str) -> None:
    assert is_event_filter(value)


@pytest.mark.parametrize(
    "value", ["", "step", "state:", "state:failed", "state:GONE", "FAILED", "incident:FAILED", "*"]
)
def test_other_texts_are_not(value: str) -> None:
    assert not is_event_filter(value)


def test_small_data_is_unchanged() -> None:
    data = {"to": "FAILED", "error": {"kind": "ValueError"}}
    assert limit_data(data) is data


def test_large_data_is_shortened_to_its_short_fields() -> None:
    data = {"to": "FAILED", "step": 3, "error": {"traceback": "x" * MAX_DATA_BYTES}, "message": "y" * 501}
    short = limit_data(data)
    assert {name: short[name] for name in ("to", "step", "truncated")} == {"to": "FAILED", "step": 3, "truncated": True}
    assert short["size_bytes"] > MAX_DATA_BYTES and "error" not in short and "message" not in short


def test_the_limit_counts_bytes_and_many_fields_stay_below_it() -> None:
    many = {f"field{number}": "é" * 499 for number in range(100)}
    assert len(json.dumps(limit_data(many), ensure_ascii=False).encode()) <= 21 * 1100
    assert limit_data({"text": "é" * (MAX_DATA_BYTES // 2 + 1)})["truncated"] is True


def test_an_event_survives_its_storage_and_a_damaged_one_is_shown() -> None:
    event = HookEvent("m1", "state", "vision", 5.0, "ana", {"to": "FAILED"}, "job_1", "gpt", {"team": "nlp"}, 7, 2)
    stored = json.loads(json.dumps(event.to_json()))
    assert HookEvent.from_json(stored) == event
    assert HookEvent.from_json({**stored, "of_a_newer_server": 1}) == event
    assert HookEvent.from_json({}).type == "damaged"
