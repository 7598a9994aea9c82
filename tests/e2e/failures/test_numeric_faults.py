"""Wrong numbers while all processes run: detected, named, rolled back, with the result of a run without faults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.slow
REPLICAS = {"dp": 4, "data_parallel": "ddp"}


def fault(do: str, rank: int, step: int, phase: str = "forward") -> dict[str, Any]:
    return {"at": {"rank": rank, "step": step, "phase": phase}, "do": do}


@pytest.fixture(scope="module")
def alike(served: Server, spec: Spec) -> Job:
    """The undisturbed run of four replicas."""
    return served.run(spec("alike", layout=REPLICAS))


def notes(served: Server, job: Job, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in served.client.events(job.id) if event.data.get("kind") == kind]


def test_a_flipped_bit_in_one_replica(served: Server, spec: Spec, alike: Job, tmp_path: Path) -> None:
    """Also in a step with a checkpoint: wrong numbers never become a checkpoint."""
    faults = [fault("flip_bit", 2, 5), fault("flip_bit", 1, 16, "optimizer")]
    gates = Gates(tmp_path, 12)
    submitted = served.client.submit(spec("flipped", layout=REPLICAS, faults=faults, **gates.parts))
    eventually(lambda: [saved.step for saved in served.client.checkpoints(submitted.id)] == [8], 120)
    gates.open(12)
    job = served.client.wait(submitted.id, timeout_s=240)
    assert_same_result(served, job, alike)
    assert [(incident.reason, incident.rank) for incident in job.incidents] == [
        ("silent_corruption", 2), ("silent_corruption", 1),
    ]  # fmt: skip
    assert [(incident.at_step, incident.steps_lost, incident.recovery_action) for incident in job.incidents] == [
        (5, 1, "respawn"), (16, 1, "respawn"),
    ]  # fmt: skip
    assert job.incidents[0].evidence["details"]["outlier_ranks"] == [2]
    assert "rank 2 had values that differ from the other ranks" in job.incidents[0].cause
    assert [note["step"] for note in notes(served, job, "snapshot_refused")] == [5, 16]
    assert [saved.step for saved in served.client.checkpoints(job.id)] == [8, 16, 24]


def test_without_the_comparison_the_result_differs(served: Server, spec: Spec, alike: Job) -> None:
    faults = [fault("flip_bit", 2, 5)]
    job = served.run(spec("not-seen", layout=REPLICAS, faults=faults, recovery={"verify_replicas": False}))
    assert (job.state, job.incidents) == ("SUCCEEDED", [])
    assert job.digest.parameters != alike.digest.parameters


def test_a_single_non_finite_loss(served: Server, spec: Spec, control: Job) -> None:
    job = served.run(spec("nan-once", faults=[fault("nan_loss", 3, 7)]))
    assert_same_result(served, job, control)
    (incident,) = job.incidents
    assert (incident.reason, incident.rank, incident.steps_lost) == ("non_finite", None, 0)
    assert incident.cause.startswith("step 7: loss nan, gradient norm nan")


def test_a_non_finite_loss_that_recurs_ends_the_job_with_advice(served: Server, spec: Spec) -> None:
    diverging = spec("diverges", layout={"dp": 2})
    diverging["training"]["optimizer"] = {"name": "sgd", "lr": 100.0, "weight_decay": 0.0, "clip_norm": None}
    job = served.run(diverging)
    assert (job.state, job.reason) == ("FAILED", "non_finite")
    assert [incident.recovery_action for incident in job.incidents] == ["respawn", "fail"]
    assert "The same failure occurred before" in job.message
    assert "Lower the learning rate" in " ".join(served.client.why(job.id).advice)


def test_a_skipped_update(served: Server, spec: Spec, control: Job) -> None:
    job = served.run(spec("skips", faults=[fault("nan_loss", 3, 7)], recovery={"non_finite": "skip"}))
    assert (job.state, job.incidents) == ("SUCCEEDED", [])
    assert [note["step"] for note in notes(served, job, "step_skipped")] == [7]
    assert job.digest.samples == control.digest.samples
    assert job.digest.parameters != control.digest.parameters
    assert served.client.ledger(job.id).exact


def test_a_flipped_bit_in_a_snapshot(served: Server, spec: Spec, control: Job) -> None:
    """Kill the rank. Its newest snapshot does not verify, so all ranks restore the previous one."""
    faults = [fault("flip_snapshot", 1, 12), fault("sigkill", 1, 12, "backward")]
    job = served.run(spec("bad-snapshot", snapshot={"mirror": "off"}, faults=faults))
    assert_same_result(served, job, control)
    (incident,) = job.incidents
    assert (incident.reason, incident.recovery_action, incident.at_step, incident.steps_lost) == (
        "rank_exit",
        "respawn",
        11,
        1,
    )
    damaged = notes(served, job, "snapshot_damaged")
    assert [(note["rank"], note["step"]) for note in damaged] == [(1, 11)]
