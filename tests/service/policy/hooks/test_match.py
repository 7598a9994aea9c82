"""Filters of hooks."""

from typing import Any

import pytest

from regroup.service.domain.hooks import HookEvent, HookFilter
from regroup.service.policy.hooks.match import is_delivered

FAILED: dict[str, Any] = {"to": "FAILED"}


@pytest.mark.parametrize(
    ("kind", "data", "events", "is_selected"),
    [
        ("state", FAILED, {"state"}, True),
        ("state", FAILED, {"state:FAILED"}, True),
        ("state", FAILED, {"state:SUCCEEDED", "state:FAILED"}, True),
        ("state", FAILED, {"state:SUCCEEDED"}, False),
        ("state", {}, {"state:FAILED"}, False),
        ("incident", {"to": "FAILED"}, {"state:FAILED"}, False),
        ("incident", {}, {"incident"}, True),
        ("incident", {}, {"state", "held"}, False),
        ("incident", {}, set(), False),
    ],
)
def test_types_and_states_select(kind: str, data: Any, events: set[str], is_selected: bool) -> None:
    event = HookEvent("m", kind, "vision", 0.0, "x", data)
    assert is_delivered(event, HookFilter(frozenset(events), {})) is is_selected


@pytest.mark.parametrize(
    ("labels", "is_selected"),
    [
        ({}, True),
        ({"team": "nlp"}, True),
        ({"team": "nlp", "tier": "1"}, True),
        ({"team": "vision"}, False),
        ({"team": "nlp", "tier": "2"}, False),
        ({"owner": ""}, False),
    ],
)
def test_a_job_must_have_all_labels(labels: dict[str, str], is_selected: bool) -> None:
    event = HookEvent("m", "held", "vision", 0.0, "x", labels={"team": "nlp", "tier": "1"})
    assert is_delivered(event, HookFilter(frozenset({"held"}), labels)) is is_selected
