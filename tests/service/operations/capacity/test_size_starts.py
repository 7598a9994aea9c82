"""Starts of a queued job by size: sizes that are tried, the confidence, and jobs that do not wait."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.errors import ConflictError
from regroup.service.operations.capacity.queue_jobs import QueueRows
from regroup.service.operations.capacity.size_starts import predict_size_starts
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import JobRow
from tests.support.inputs.job_rows import JOB
from tests.support.inputs.placed_jobs import add_rack, place_job
from tests.support.inputs.queue_inputs import node
from tests.support.servers.live_server import spec_json


def queued(dp: Any, name: str = "gpt") -> JobRow:
    training = {"global_batch": 48, "micro_batch": 1, "sequence": 16, "steps": 10}
    spec = parse_spec(spec_json(name, layout={"dp": dp}, training=training)).model_dump(mode="json")
    return replace(JOB, id=f"j-{name}", name=name, spec=spec, queued_at=900.0)


def starts(job: JobRow, *devices: int) -> list[tuple[int, bool, bool]]:
    nodes = [node(f"n{index}", 8, free=free) for index, free in enumerate(devices)]
    found = predict_size_starts(job.id, nodes, QueueRows([job], (), (), ()), SchedulingPolicy(), 1000.0)
    return [(each.ranks, each.is_legal, each.is_now) for each in found]


def test_a_job_that_starts_now_needs_no_other_size() -> None:
    assert starts(queued(8), 8) == [(8, True, True)]


def test_smaller_sizes_are_tried_until_one_starts_now() -> None:
    assert starts(queued(16), 8) == [(16, True, False), (8, False, True)]
    assert starts(queued({"min": 4, "target": 16, "max": 16}), 8)[-1] == (8, True, True)


def test_at_most_two_sizes_below_the_smallest_are_tried() -> None:
    assert starts(queued(16), 1) == [(16, True, False), (8, False, False), (4, False, False)]
    assert starts(queued(1), 0) == [(1, True, False)]


def test_the_number_of_sizes_is_bounded() -> None:
    found = starts(queued({"min": 2, "target": 48, "max": 48}), 1)
    assert found[0] == (48, True, False) and len(found) <= 7
    assert [ranks for ranks, _, _ in found] == sorted({ranks for ranks, _, _ in found}, reverse=True)
    assert (2, True, False) in found and found[-1] == (1, False, True)


def test_a_job_that_does_not_wait_is_refused() -> None:
    with pytest.raises(ConflictError, match="does not wait"):
        predict_size_starts("j-other", [], QueueRows([queued(1)], (), (), ()), SchedulingPolicy(), 1000.0)


@pytest.mark.parametrize(("steps", "confidence"), [(7200, "medium"), (None, "low")])
async def test_the_confidence_depends_on_what_is_known(live: Any, steps: int | None, confidence: str) -> None:
    add_rack(live, "r1", 1)
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": steps or 10}
    script = {"workload": {"kind": "script", "entrypoint": "/x.py"}, "training": None}
    runs = (await live.submit(name="runs", layout={"dp": 4}, **({"training": training} if steps else script)))["id"]
    await place_job(live, runs, {"r1-0": 4})
    waits = (await live.submit(name="waits", layout={"dp": 4}))["id"]
    answer = (await live.http.get(f"/v1/jobs/{waits}/starts")).json()["starts"]
    assert [(each["ranks"], each["is_now"], each["confidence"]) for each in answer] == [
        (4, False, confidence), (2, False, confidence), (1, False, confidence),
    ]  # fmt: skip
    assert answer[0]["is_requested"] and answer[0]["start_s"] - live.services.clock() == pytest.approx(3600, abs=200)
    assert (await live.http.get(f"/v1/jobs/{runs}/starts")).status_code == 409
