"""Rows of jobs for a forecast: remaining work with its basis, devices, dependencies, and damaged specs."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.operations.capacity.queue_jobs import QueueRows, queue_jobs, with_released
from regroup.service.policy.scheduling.entries import RunningJob
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow
from tests.support.inputs.job_rows import JOB
from tests.support.inputs.placed_jobs import add_rack, place_job
from tests.support.inputs.queue_inputs import demand, node
from tests.support.servers.live_server import spec_json

NOW_S = 1000.0


def queued(name: str = "gpt", **fields: Any) -> JobRow:
    spec = parse_spec(spec_json(name)).model_dump(mode="json")
    return replace(JOB, id=f"j-{name}", name=name, spec={**spec, **fields}, queued_at=900.0)


@pytest.mark.parametrize(
    ("job", "left_s", "basis"),
    [
        (replace(queued(), step=4, step_duration_s=2.0), 12.0, "progress"),
        (replace(queued(), step=10, step_duration_s=2.0), 1.0, "progress"),
        (queued(max_duration=7200.0), 7200.0 + 120.0, "max_duration"),  # with the time of its end
        (queued(), 600.0, "assumed"),
    ],
)
def test_the_remaining_work_has_a_basis(job: JobRow, left_s: float, basis: str) -> None:
    (found,) = queue_jobs(QueueRows([job], (), (), ()), 600.0, NOW_S)
    assert (found.left_s, found.basis, found.parts) == (left_s, basis, ())
    assert found.waiting_job.queued_s == -100.0, "times are relative to now"


def test_only_dependencies_that_are_not_over_count() -> None:
    job = queued("after", depends_on=["j-first", "j-ended"])
    rows = QueueRows([job, queued("first")], (), (), ())
    waits = {each.id: each.waiting_job.pending_dependencies for each in queue_jobs(rows, 600.0, NOW_S)}
    assert waits == {"j-after": ("j-first",), "j-first": ()}


def test_a_damaged_spec_is_left_out() -> None:
    rows = QueueRows([replace(queued("bad"), spec={"name": 7}), queued("good")], (), (), ())
    assert [each.id for each in queue_jobs(rows, 600.0, NOW_S)] == ["j-good"]


async def test_a_job_with_devices_has_them_as_parts(live: Any) -> None:
    add_rack(live, "r1", 2)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"r1-0": 2, "r1-1": 2})
    store, now = live.store, live.services.clock()
    rows = QueueRows((), await store.live_jobs(), await store.live_allocations(), ())
    (found,) = queue_jobs(rows, 600.0, now)
    (part,) = found.parts
    assert (found.basis, sorted(count for _, count in part.node_ranks)) == ("progress", [2, 2])
    assert found.left_s == pytest.approx(9 * 0.5, abs=5), "nine steps of half a second are left"
    assert part.allocated_at_s <= 0


def test_released_devices_are_free_again() -> None:
    nodes = [node("a", 8, free=0), node("b", 8, free=8)]
    part = RunningJob("j", "j", demand(4), (("a", 4), ("gone", 4)))
    freed = {each.id: each.free_gpus for each in with_released(nodes, [part])}
    assert freed == {"a": 4, "b": 8}
