"""Training libraries as teams use them: the same file ends alike under torchrun and here, where it loses a rank."""

import hashlib
from pathlib import Path

import pytest

from regroup.api.cli.spec_input.spec_file import read_spec
from regroup.api.schemas.jobs import Job
from tests.support.jobs.script_jobs import digest, output, torchrun
from tests.support.packages.wheel import ROOT
from tests.support.servers.regroup_server import Server

BACK_WITHIN_S = 3.0
"""Seconds from a kill to the first new step, with the example's `preload`."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lose_a_rank(served: Server, tmp_path: Path, name: str, file: str) -> tuple[Job, str]:
    """Run an example under torchrun, without faults, and then its spec with another folder.

    Return the job, and the output of rank 0 of the second generation.
    """
    path, spec = ROOT / "examples" / file, read_spec(ROOT / "examples" / f"{name}.yaml")
    before = sha256(path)
    folder, *others = spec["workload"]["args"][1:]
    assert spec["workload"]["entrypoint"] == str(path) and folder == f"/tmp/{name}"
    undisturbed = digest(torchrun(path, "--folder", str(tmp_path / "torchrun"), *others, ranks=2))
    spec["workload"]["args"] = ["--folder", str(tmp_path / "job"), *others]
    job = served.run(spec)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert (job.step, job.generation) == (spec["workload"]["steps"], 2)
    again = output(served, job, generation=2)
    assert digest(again) == undisturbed
    assert sha256(path) == before
    return job, again


def assert_back(served: Server, job: Job) -> None:
    """Check the cost of the killed rank: the steps since the script's own checkpoint, of step 30, and little time.

    If a preload started a thread, every rank would start with exec and import everything again.
    """
    (incident,) = job.incidents
    assert (incident.reason, incident.rank) == ("rank_exit", 1)
    assert incident.at_step in (32, 33), "its peer may have finished the step in which the rank died"
    assert incident.steps_lost == incident.at_step - 30
    nodes = [event.data for event in served.client.events(job.id) if event.data.get("kind") == "node"]
    assert nodes and all((node["launcher"], node["why"]) == ("fork", "") for node in nodes)
    total_s = incident.durations["total"]
    assert total_s is not None and total_s <= BACK_WITHIN_S, incident.durations


@pytest.mark.slow
def test_transformers_with_accelerate(served: Server, tmp_path: Path) -> None:
    job, again = lose_a_rank(served, tmp_path, "transformers-accelerate", "transformers_accelerate.py")
    assert "rank 0 resumes after step 30\n" in again
    assert_back(served, job)


@pytest.mark.slow
def test_lightning(served: Server, tmp_path: Path) -> None:
    job, again = lose_a_rank(served, tmp_path, "lightning-ddp", "lightning_ddp.py")
    assert again.startswith("step 35 loss "), "the earlier epochs are done"
    assert_back(served, job)
