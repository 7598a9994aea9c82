"""Any valid spec survives what the control plane does with it, in a time that its numbers do not change."""

import dataclasses
import json
import time
from typing import Any

import pytest
from hypothesis import assume, given

from regroup.service.cluster_state.queue import Specs, running, waiting
from regroup.service.documents.json_text import parse_json
from regroup.service.domain.errors import SpecError
from regroup.service.domain.states import JobState
from regroup.service.operations.why import explain
from regroup.service.policy.accounting import TimeClass
from regroup.service.policy.scheduling.decide import Admission, Wait, decide
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.types import MAX_RANKS
from regroup.service.store.rows.records import Allocation, AllocationKind
from tests.support.inputs.fuzz import fuzz_settings
from tests.support.inputs.queue_inputs import node
from tests.support.inputs.valid_specs import queued_row, specs

NODES = [node(f"n{number}") for number in range(4)]
OTHER = {"name": "other", "workload": {"kind": "script", "entrypoint": "/a.py"}, "priority": "critical"}
_SECONDS = dict.fromkeys(TimeClass, 10.0)
MAX_SIZES = 2000
MAX_S = 5.0
"""Generous for a busy machine. An expansion size by size takes longer."""


@pytest.mark.fuzz
@fuzz_settings(500)
@given(specs())
def test_any_valid_spec_survives(data: dict[str, Any]) -> None:
    started_s = time.process_time()  # other processes may use the cores
    spec = _parse_or_discard(data)
    stored = _check_round_trip(spec)
    _check_ladder(spec)
    if spec.layout.auto is None:
        _check_scheduling(stored)
        _check_explanation(stored)
    assert time.process_time() - started_s < MAX_S


def _parse_or_discard(data: dict[str, Any]) -> JobSpec:
    try:
        return parse_spec(data)
    except SpecError as error:
        assert all(issue.message for issue in error.issues)
        assume(False)
        raise


def _check_round_trip(spec: JobSpec) -> dict[str, Any]:
    # With an automatic layout the fields that are set have a meaning; it is replaced before a spec is stored.
    stored = spec.model_dump(mode="json", exclude_unset=spec.layout.auto is not None)
    text = json.dumps(stored, allow_nan=False)
    assert parse_json(text) == stored, "the strict reader takes what the server answers"
    assert JobSpec.model_validate(stored) == spec
    assert parse_spec(text) == spec, "JSON is YAML"
    return stored


def _check_ladder(spec: JobSpec) -> None:
    if spec.layout.auto is not None:
        assert spec.ladder == ()
        return
    ladder, dp = spec.ladder, spec.layout.dp
    degrees = [layout.data_degree for layout in ladder]
    assert 1 <= len(ladder) <= MAX_SIZES
    assert degrees == sorted(set(degrees)) and {dp.min, dp.target, dp.max} <= set(degrees)
    assert all(layout.world_size <= MAX_RANKS for layout in ladder)
    for layout in (ladder[0], ladder[len(ladder) // 2], ladder[-1]):
        assert layout == next(spec.legal_layouts(layout.data_degree))


def _check_scheduling(stored: dict[str, Any]) -> None:
    specs_of_jobs = Specs()
    job = waiting(queued_row(stored), specs_of_jobs, after=(), now=20.0, start_s=30.0)
    first = dataclasses.replace(queued_row(OTHER, "job_2"), queued_at=1.0)
    other = waiting(first, specs_of_jobs, after=(), now=20.0, start_s=30.0)
    decisions = decide([job, other], NODES, [], {"default": Quota(4, None, 30)}, now_s=20.0)
    by_job = {each.job_id: each for each in decisions}
    assert isinstance(by_job["job_2"], Admission), "the pass decided about the job ahead"
    assert isinstance(by_job["job_1"], Admission | Wait)
    if isinstance(mine := by_job["job_1"], Wait):
        assert mine.why.message


def _check_explanation(stored: dict[str, Any]) -> None:
    row = queued_row(stored)
    assert explain(row, [], [], 0, _SECONDS, 20.0).summary
    live = dataclasses.replace(row, state=JobState.RUNNING, started_at=15.0, step=1, step_duration_s=0.1, generation=1)
    data = {"ranks": 1, "device_kind": "cpu", "cpus": 1, "memory_bytes": 0}
    reservation = Allocation("job_1", AllocationKind.RESERVATION, "r", "n0", data)
    assert running(live, [reservation], Specs(), now=20.0)
    assert explain(live, [], [], None, _SECONDS, 20.0).summary
