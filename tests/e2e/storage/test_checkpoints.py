"""Checkpoints: a job continues from another's, a pinned one is kept, a damaged one is never used, and export works."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from safetensors import safe_open

from regroup.api.client.connection.errors import ApiError
from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
NO_MIRROR = {"mirror": "off"}


def saved(served: Server, job: Job, step: int) -> Path:
    """Return the folder of a job's checkpoint of `step`, once it exists."""
    uri = eventually(lambda: [found.uri for found in served.client.checkpoints(job.id) if found.step == step])[0]
    return Path(urlsplit(uri).path)


def damage(checkpoint: Path) -> None:
    """Flip one byte in the middle of one file of shards."""
    shard = max(checkpoint.glob("*.distcp"), key=lambda path: path.stat().st_size)
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def test_a_job_continues_from_a_step_of_another(served: Server, spec: Spec, control: Job) -> None:
    first, *_, last = [found.step for found in served.client.checkpoints(control.id)]
    assert (first, last) == (8, 24)
    job = served.run(spec("from-8", resume_from=f"{control.id}@8"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    assert [row.step for row in served.client.steps(job.id)] == list(range(9, 25))
    ledger = served.client.ledger(job.id)
    assert ledger.exact, ledger.problems


@pytest.mark.slow
def test_a_job_continues_from_the_latest_step_of_one_that_failed(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 12)
    raises = [{"at": {"rank": 1, "step": 13, "phase": "forward"}, "do": "raise"}]
    failing = served.client.submit(spec("fails", faults=raises, **gates.parts))
    saved(served, failing, 8)
    gates.open(12)
    assert served.client.wait(failing.id, timeout_s=240).state == "FAILED"
    with pytest.raises(ApiError, match="steps in storage: 8"):
        served.client.submit(spec("goes-on", resume_from="fails@16"))
    # The job loses its memory before its first checkpoint, so it restarts from the same step of the other job.
    faults = [{"at": {"rank": 2, "step": 12, "phase": "forward"}, "do": "kill_agent"}]
    job = served.run(spec("goes-on", resume_from="fails@latest", snapshot=NO_MIRROR, faults=faults))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    assert [row.step for row in served.client.steps(job.id)] == list(range(9, 25))
    assert [formed.start_step for formed in served.client.generations(job.id)] == [8, 8]


def test_a_job_does_not_start_from_a_damaged_checkpoint_and_names_it(served: Server, spec: Spec) -> None:
    source = served.run(spec("damaged", steps=2))
    damage(saved(served, source, 2))
    job = served.run(spec("resumed", resume_from="damaged@latest"))
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert "step-2.gen-1" in job.message and "damaged" in job.message


@pytest.mark.slow
def test_a_pinned_checkpoint_survives_retention(served: Server, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 12)
    job = served.client.submit(spec("pinned", checkpoint={"every_steps": 8, "keep_last": 1}, **gates.parts))
    pinned = saved(served, job, 8)
    served.client.pin_checkpoint(job.id, 8)
    gates.open(12)
    done = served.client.wait(job.id, timeout_s=240)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert [found.step for found in served.client.checkpoints(job.id)] == [8, 24]
    assert sorted(path.name for path in pinned.parent.iterdir()) == ["step-24.gen-1", "step-8.gen-1"]


def test_files_of_dead_savers_are_collected(served: Server, spec: Spec, tmp_path: Path) -> None:
    """Kill three savers of one checkpoint, one after the other. Then the checkpoint is abandoned."""
    gates = Gates(tmp_path, 12)
    faults = [{"at": {"rank": 1, "step": step, "phase": "forward"}, "do": "kill_saver"} for step in (5, 6, 7)]
    job = served.client.submit(spec("torn", faults=faults, **gates.parts))

    def noted() -> list[str]:
        notes = [event.data for event in served.client.events(job.id) if event.type == "note"]
        return [note["kind"] for note in notes if note["kind"].startswith("checkpoint_")]

    eventually(lambda: noted() == ["checkpoint_failed", "checkpoint_torn"])
    gates.open(12)
    assert served.client.wait(job.id, timeout_s=240).state == "SUCCEEDED"
    folder = saved(served, job, 24).parent
    assert sorted(path.name for path in folder.iterdir()) == ["step-16.gen-1", "step-24.gen-1"]


@pytest.mark.slow
def test_a_damaged_checkpoint_is_skipped_for_an_older_one(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 12, 20)
    faults = [{"at": {"rank": 2, "step": 21, "phase": "forward"}, "do": "kill_agent"}]
    job = served.client.submit(spec("bitrot", snapshot=NO_MIRROR, faults=faults, **gates.parts))
    saved(served, job, 8)  # step 16 would be postponed if this one were still being written
    gates.open(12)
    damage(saved(served, job, 16))
    gates.open(20)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    starts = [formed.start_step for formed in served.client.generations(job.id)]
    assert starts == [0, 16, 8]
    assert [incident.reason for incident in done.incidents] == ["agent_lost", "io_error"]
    notes = [event.data for event in served.client.events(job.id) if event.data.get("kind") == "checkpoint_unusable"]
    assert ["step-16.gen-1" in note["message"] for note in notes] == [True]


@pytest.mark.slow
def test_unreachable_storage_during_a_restore_costs_no_checkpoint(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 12)
    faults = [{"at": {"rank": 2, "step": 13, "phase": "forward"}, "do": "kill_agent"}]
    budgets = {"budgets": {"io_error": 50}}
    job = served.client.submit(spec("away", snapshot=NO_MIRROR, faults=faults, recovery=budgets, **gates.parts))
    folder = saved(served, job, 8).parent
    away = folder.rename(folder.with_name("away"))
    gates.open(12)
    eventually(lambda: "io_error" in [incident.reason for incident in served.client.get(job.id).incidents])
    away.rename(folder)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert {formed.start_step for formed in served.client.generations(job.id)} == {0, 8}
    assert "checkpoint_unusable" not in [event.data.get("kind") for event in served.client.events(job.id)]


def test_export_writes_the_parameters_of_a_step(served: Server, control: Job, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    command = [sys.executable, "-m", "regroup.api.cli", "export", f"{control.id}@16", str(out), "--server", served.url]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    from regroup.workers.models.transformer import build  # imports torch

    with safe_open(out, "pt") as found:
        assert found.metadata()["step"] == "16"
        shapes = {name: tuple(found.get_slice(name).get_shape()) for name in found.keys()}  # noqa: SIM118 - no mapping
    model = build(control.spec.workload.model.model_dump(), shapes["embed.weight"][0])  # pyright: ignore[reportAttributeAccessIssue]
    assert shapes == {name: tuple(value.shape) for name, value in model.named_parameters()}
