"""Gauges of a job exist only while they have a value."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.states import JobState
from regroup.service.observability.job_gauges import JOB_GAUGES
from regroup.service.observability.metric_names import METRICS
from regroup.service.store.rows.records import MIRRORED, Condition
from tests.support.inputs.job_rows import JOB

FIGURES = {"done_bytes": 12, "total_bytes": 40, "bytes_per_s": 3.5}


def values(**fields: Any) -> dict[str, float]:
    """Return the gauges of a running job that have a value."""
    account = JobAccount(replace(JOB, state=JobState.RUNNING, **fields))
    found = {metric.name: value(account, 100.0) for metric, value in JOB_GAUGES}
    return {name: number for name, number in found.items() if number is not None}


def of_kind(kind: str, found: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if name.startswith(f"regroup_job_{kind}_")}


@pytest.mark.parametrize("kind", ["restore", "save"])
def test_a_job_that_moves_bytes_has_their_figures(kind: str) -> None:
    moving = {"phase": {"phase": "restoring", **FIGURES}} if kind == "restore" else {"save": FIGURES}
    found = values(**moving)
    assert of_kind(kind, found) == {
        f"regroup_job_{kind}_done_bytes": 12,
        f"regroup_job_{kind}_total_bytes": 40,
        f"regroup_job_{kind}_bytes_per_second": 3.5,
    }
    assert not of_kind("save" if kind == "restore" else "restore", found)


def test_a_job_that_moves_none_has_no_such_gauges() -> None:
    found = values(phase={"phase": "data", **FIGURES})
    assert not of_kind("restore", found) and not of_kind("save", found)


@pytest.mark.parametrize(("reason", "sets"), [("one_mirror", 1), ("no_mirror", 0)])
def test_fewer_mirrors_than_two_have_a_condition(reason: str, sets: int) -> None:
    short = Condition(MIRRORED, False, reason, "memory is short")
    assert values(mirrored_step=4, conditions=(short,))["regroup_job_mirror_sets"] == sets
    assert values(mirrored_step=4)["regroup_job_mirror_sets"] == 2
    assert "regroup_job_mirror_sets" not in values()


def test_each_gauge_is_listed_once() -> None:
    names = [metric.name for metric, _ in JOB_GAUGES]
    listed = [metric.name for metric in METRICS]
    assert len(listed) == len(set(listed)) and len(names) == len(set(names))
    assert set(names) <= set(listed)
