"""The queued jobs as small values."""

import dataclasses
from typing import Any

import pytest

from regroup.service.cluster_state.queued_jobs import queue_entry
from regroup.service.domain.queued_job import QueuedJob
from regroup.service.domain.states import JobState
from regroup.service.policy.scheduling.entries import Priority
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.job_rows import JOB_COLUMNS
from regroup.service.store.rows.records import PLACEABLE, START_ESTIMATED, Condition

SPEC: dict[str, Any] = {
    "name": "gpt",
    "project": "vision",
    "priority": "high",
    "layout": {"dp": {"min": 2, "target": 4, "max": 4}},
    "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10},
}


def row(**changes: Any) -> dict[str, Any]:
    """Return the stored row of a queued job."""
    values: dict[str, Any] = {column.name: None for column in JOB_COLUMNS}
    texts = dict.fromkeys(("owner", "author", "storage_uri", "message", "supervisor_boot_id"), "")
    numbers = dict.fromkeys(("version", "revision", "generation", "step", "step_rows", "acked_seq"), 1)
    return {
        **values, **texts, **numbers, "id": "job_1", "project": "vision", "name": "gpt", "state": JobState.QUEUED,
        "reason": "submitted", "intents": {}, "conditions": [], "created_at": 5.0, "queued_at": 7.0, "stall_s": 0.0,
        "rank_phases": {}, "spec": parse_spec(SPEC).model_dump(mode="json"), **changes,
    }  # fmt: skip


def test_a_row_becomes_what_people_see_and_what_decides_its_place() -> None:
    conditions = [
        dataclasses.asdict(Condition(PLACEABLE, False, "resources", "no node is free")),
        dataclasses.asdict(Condition(START_ESTIMATED, True, "promised", "2030-01-02T03:04Z")),
    ]
    found = queue_entry(row(conditions=conditions))
    assert found.job == QueuedJob(
        "job_1", "gpt", "vision", "high", 4, 7.0, None, "resources", "no node is free", 1893553440.0
    )
    assert found.waiting is not None
    waits = found.waiting
    assert (waits.job_id, waits.project, waits.priority, waits.queued_s) == ("job_1", "vision", Priority.high, 7.0)
    assert waits.min_ranks == 2 and len(waits.sizes) == 1


@pytest.mark.parametrize("spec", [{"name": 7}, {}, None])
def test_a_job_whose_spec_cannot_be_read_has_no_place(spec: Any) -> None:
    found = queue_entry(row(spec=spec))
    assert found.waiting is None
    assert (found.job.id, found.job.priority, found.job.ranks) == ("job_1", "normal", None)
