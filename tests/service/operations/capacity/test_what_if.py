"""Comparison of the queue with and without a change: the compared jobs, those that a sender sees, and the limits."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.errors import SpecError, UnavailableError
from regroup.service.operations.capacity import what_if
from regroup.service.operations.capacity.queue_jobs import QueueRows
from regroup.service.operations.capacity.scenario import WhatIfRequest
from regroup.service.operations.capacity.what_if import WhatIf, compare
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow
from tests.support.inputs.job_rows import JOB
from tests.support.inputs.queue_inputs import node
from tests.support.servers.live_server import spec_json

NOW_S = 1000.0


def queued(name: str, project: str = "default", dp: int = 4) -> JobRow:
    training = {"global_batch": dp, "micro_batch": 1, "sequence": 16, "steps": 10}
    fields: dict[str, Any] = {"layout": {"dp": dp}, "project": project, "max_duration": "1h", "training": training}
    spec = parse_spec(spec_json(name, **fields)).model_dump(mode="json")
    return replace(JOB, id=f"j-{name}", name=name, project=project, spec=spec, queued_at=900.0)


def run(*jobs: JobRow, sees: Any = lambda project: True, **change: Any) -> WhatIf:
    rows = QueueRows(jobs, (), (), ())
    request = WhatIfRequest.model_validate(change)
    return compare(request, [node("a", 4)], rows, SchedulingPolicy(), NOW_S, sees)


def test_times_are_those_of_the_clock_and_waits_are_from_now() -> None:
    found = run(queued("one"), queued("two"))
    first, second = found.jobs
    assert first.start_before_s is not None and NOW_S <= first.start_before_s < NOW_S + 60
    assert second.start_before_s is not None and second.start_before_s >= NOW_S + 3600
    assert (found.waits.jobs, found.waits.earlier, found.waits.later) == (2, 0, 0)
    assert found.waits.median_before_s == found.waits.median_after_s


def test_more_nodes_start_a_job_earlier() -> None:
    found = run(queued("one"), queued("two"), add_nodes={"count": 1})
    assert (found.waits.earlier, found.waits.later) == (1, 0)
    assert found.waits.median_after_s < found.waits.median_before_s
    assert found.utilisation_after < found.utilisation_before


def test_cancelled_and_added_jobs_are_not_compared() -> None:
    found = run(
        queued("one"),
        queued("two"),
        cancel=["j-one"],
        add_jobs=[{"name": "new", "ranks": 4, "duration_s": 60, "device": "cpu"}],
    )
    by_name = {job.name: job for job in found.jobs}
    assert by_name["one"].is_cancelled and by_name["one"].start_after_s is None
    assert by_name["new"].is_added and by_name["new"].start_before_s is None
    assert found.waits.jobs == 1


def test_jobs_of_other_projects_take_part_unseen() -> None:
    found = run(queued("one", "secret"), queued("two", "own"), sees=lambda project: project == "own")
    assert [job.name for job in found.jobs] == ["two"] and found.hidden_jobs == 1
    assert found.jobs[0].start_before_s is not None and found.jobs[0].start_before_s >= NOW_S + 3600
    assert list(found.projects) == ["own"]
    with pytest.raises(SpecError, match="no such job"):
        run(queued("one", "secret"), sees=lambda project: False, cancel=["j-one"])


def test_a_job_that_never_starts_counts_with_the_simulated_time() -> None:
    found = run(queued("wide", dp=8), horizon_s=7200)
    assert (found.waits.never_before, found.waits.median_before_s) == (1, 7200)
    assert found.jobs[0].start_before_s is None


async def test_a_queue_that_is_too_large_is_refused(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MAX_JOBS", 1)
    for name in ("one", "two"):
        await live.submit(name=name)
    with pytest.raises(UnavailableError, match="at most 1 jobs; there are 2"):
        await live.services.simulations.run(WhatIfRequest(), lambda project: True)
