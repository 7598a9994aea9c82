"""State of a function that is more than parameters, and that differs between ranks, after each kind of restore."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs import kept_state
from tests.support.servers.regroup_server import Server

FOLDER = Path(kept_state.__file__).parent
STEPS, SAVED = 8, 5


def function(name: str, **parts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "workload": {"kind": "function", "function": "kept_state:train"},
        "code": {"working_dir": str(FOLDER)},
        "training": {"steps": STEPS, "global_batch": 8, "micro_batch": 4},
        "layout": {"dp": 2, "data_parallel": "ddp"},
        "snapshot": {"every_steps": 1},
        "checkpoint": {"every_steps": SAVED},
        **parts,
    }


def digests(served: Server, job: Job) -> list[list[str]]:
    """Return the last lines of each rank, which contain a digest of each model."""
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    newest = max(formed.number for formed in served.client.generations(job.id))
    logs = ["".join(served.client.logs(job.id, rank=rank, generation=newest)) for rank in range(2)]
    return [log.splitlines()[-5:] for log in logs]


@pytest.fixture(scope="module")
def undisturbed(served: Server) -> Job:
    """The function without a fault."""
    return served.run(function("state-undisturbed"))


def test_ranks_have_state_of_their_own_after_a_kill(served: Server, undisturbed: Job) -> None:
    expected = digests(served, undisturbed)
    assert expected[0] != expected[1] and expected[0][-1] == "groups 2"
    fault = {"at": {"rank": 1, "step": 6, "phase": "optimizer"}, "do": "sigkill"}
    job = served.run(function("state-killed", faults=[fault]))
    assert [formed.restore["kind"] for formed in served.client.generations(job.id)][1:] == ["memory"]
    assert digests(served, job) == expected


def test_ranks_have_state_of_their_own_after_a_restore_from_disk(served: Server, undisturbed: Job) -> None:
    job = served.run(function("state-resumed", resume_from=f"{undisturbed.id}@{SAVED}"))
    assert [formed.restore["kind"] for formed in served.client.generations(job.id)] == ["checkpoint"]
    assert digests(served, job) == digests(served, undisturbed)


def test_a_restart_check_repeats_two_steps_and_changes_nothing(served: Server, undisturbed: Job) -> None:
    job = served.run(function("state-checked", recovery={"verify": "restart"}))
    assert digests(served, job) == digests(served, undisturbed)
    formed = served.client.generations(job.id)
    assert [(each.start_step, each.cause) for each in formed] == [(0, "start"), (2, "restart_check")]
    notes = [event.data for event in served.client.events(job.id) if event.data.get("kind") == "restart_verified"]
    assert [note["message"] for note in notes] == ["steps 3 to 4 are equal"]


def test_a_restart_check_ends_a_job_that_forgets_state(served: Server) -> None:
    spec = function("state-forgotten", recovery={"verify": "restart"})
    job = served.run(spec | {"workload": {"kind": "function", "function": "kept_state:forget"}})
    assert (job.state, job.reason) == ("FAILED", "state_not_restored")
    assert "a restart from memory changes the result: after step 3" in job.message and "weight" in job.message


def checked(served: Server, folder: Path, *options: str, **parts: Any) -> subprocess.CompletedProcess[str]:
    """Type `regroup run --check` with a spec file."""
    file = folder / "checked.json"
    file.write_text(json.dumps(function("state", **parts)))
    command = [sys.executable, "-m", "regroup.api.cli", "run", "--server", served.url, "--check", str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_run_check_ends_after_a_few_steps_and_says_that_nothing_changes(served: Server, tmp_path: Path) -> None:
    done = checked(served, tmp_path, training={"steps": 200, "global_batch": 8, "micro_batch": 4})
    assert done.returncode == 0, done.stderr
    verdict = "EQUAL: a restart from memory changes nothing: steps 3 to 4 are equal on every rank"
    assert done.stdout.splitlines()[-1] == verdict
    job = served.client.get("state-check")
    assert (job.state, job.reason) == ("SUCCEEDED", "restart_verified")
    assert 4 <= job.step < 100, "the ranks continue until they are stopped"


def test_run_check_names_what_a_restart_does_not_restore(served: Server, tmp_path: Path) -> None:
    workload = {"kind": "function", "function": "kept_state:forget"}
    done = checked(served, tmp_path, "--json", workload=workload)
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["outcome"], verdict["after_step"], verdict["ranks"]) == ("different", 3, [0, 1])
    assert {"weight", "bias"} <= set(verdict["parts"])
    assert served.client.get(verdict["job_id"]).reason == "state_not_restored"
