"""Unmodified torchrun scripts as jobs: the same result as under torchrun, also after a kill, and every way to end."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.jobs.script_jobs import digest, output, script, torchrun
from tests.support.servers.regroup_server import Server, called, eventually

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "torchrun_ddp.py"
STEPS = 24


def written(tmp_path: Path, source: str) -> Path:
    """Write a script; return its path."""
    path = tmp_path / "train.py"
    path.write_text(source)
    return path


@pytest.fixture(scope="module")
def under_torchrun(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the example under torchrun, without faults."""
    folder = tmp_path_factory.mktemp("torchrun")
    return digest(torchrun(EXAMPLE, "--folder", str(folder), "--steps", str(STEPS), ranks=4))


def test_the_example_loses_a_rank_and_ends_as_under_torchrun(
    served: Server, tmp_path: Path, under_torchrun: str
) -> None:
    fault = {"at": {"rank": 2, "step": 13, "phase": "optimizer"}, "do": "sigkill"}
    arguments = ("--folder", str(tmp_path / "state"), "--steps", str(STEPS))
    job = served.run(script("ddp", EXAMPLE, *arguments, ranks=4, steps=STEPS, faults=[fault]))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert (job.step, job.steps, job.generation) == (STEPS, STEPS, 2)
    (incident,) = job.incidents
    # The script's own checkpoint is of step 10, as Adam's state shows.
    assert (incident.reason, incident.rank, incident.recovery_action) == ("rank_exit", 2, "respawn")
    assert incident.at_step is not None and incident.steps_lost == incident.at_step - 10
    again = output(served, job, generation=2)
    assert "rank 0 resumes after step 10" in again
    assert digest(again) == under_torchrun
    rows = list(served.client.steps(job.id))
    assert [row.step for row in rows] == list(range(1, STEPS + 1))
    assert [row.generation for row in rows] == [1] * 10 + [2] * (STEPS - 10)
    assert {(row.loss, row.tokens, row.samples, row.samples_hash) for row in rows} == {(None, None, None, None)}
    assert {row.learning_rate for row in rows} == {0.01}
    assert not served.client.checkpoints(job.id)


def test_a_script_that_exits_with_a_code_fails_at_once_and_names_it(served: Server, tmp_path: Path) -> None:
    path = written(
        tmp_path, "import os, sys\nif os.environ['RANK'] == '1':\n    sys.exit(3)\nimport time\ntime.sleep(600)"
    )
    job = served.run(script("exits", path), within_s=90)
    assert (job.state, job.reason, job.generation) == ("FAILED", "user_error", 1)
    assert job.message == "rank 1: SystemExit: the script exited with code 3"
    assert job.error is not None and (job.error["rank"], job.error["kind"]) == (1, "SystemExit")


RAISES_ONCE = """
import os
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("not yet")
print("restarts", os.environ["TORCHELASTIC_RESTART_COUNT"], "of", os.environ["TORCHELASTIC_MAX_RESTARTS"])
"""


def test_an_error_is_retried_as_often_as_allowed(served: Server, tmp_path: Path) -> None:
    path = written(tmp_path, RAISES_ONCE)
    job = served.run(script("again", path, recovery={"budgets": {"user_error": 2}}), within_s=90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.generation == 2
    assert output(served, job, generation=2) == "restarts 1 of 2\n"
    assert [incident.reason for incident in job.incidents] == ["user_error"]


def test_an_error_ends_the_job_with_one_traceback_of_the_script_only(served: Server, tmp_path: Path) -> None:
    path = written(tmp_path, "def train():\n    raise ValueError('bad')\n\ntrain()\n")
    job = served.run(script("raises", path, ranks=1), within_s=90)
    assert (job.state, job.reason) == ("FAILED", "user_error")
    assert job.error is not None
    lines = job.error["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: bad"
    assert [line.split('"')[1] for line in lines if line.startswith("  File")] == [str(path)] * 2
    assert output(served, job, generation=1, stream="stderr") == job.error["traceback"]


def test_a_missing_script_is_named_with_its_node(served: Server, tmp_path: Path) -> None:
    job = served.run(script("nowhere", tmp_path / "nowhere.py", ranks=1), within_s=90)
    assert (job.state, job.reason) == ("FAILED", "invalid_input")
    assert f"no script {tmp_path}/nowhere.py on node " in job.message
    assert "No such file or directory" in job.message


LEAKS = """
import os, subprocess, sys, time
for detach in (False, True):
    subprocess.Popen([sys.argv[1], "-c", "import time; time.sleep(1000)"], executable=sys.executable,
                     start_new_session=detach)
"""


def test_a_script_that_leaks_processes_leaves_nothing(served: Server, tmp_path: Path) -> None:
    title = f"leaked-{uuid.uuid4().hex}"
    job = served.client.submit(script("leaks", written(tmp_path, LEAKS), title))
    job = served.client.wait(job.id, timeout_s=90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert job.step == 0
    eventually(lambda: not called(title), 15)


PRINTS_FACTS = """
import atexit, json, os, sys, threading, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
         "ROLE_WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
atexit.register(lambda: print("at exit"))
print(json.dumps([{name: os.environ[name] for name in names}, sys.argv, os.getcwd(), sys.path[0], __name__]))
"""


def test_a_module_gets_its_rank_and_ends_as_under_python(served: Server, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "facts.py").write_text(PRINTS_FACTS)
    workload = {"kind": "script", "module": "package.facts", "args": ["--lr", "0.1"], "cwd": str(tmp_path)}
    job = served.run({"name": "module", "workload": workload, "layout": {"dp": 4}}, within_s=90)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    text = output(served, job, generation=1, rank=3)
    first, *rest = text.splitlines()
    assert rest == ["thread", "at exit"]
    env, argv, cwd, first_on_path, name = json.loads(first)
    assert env == {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2", "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4", "ROLE_NAME": "default",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    assert argv == [str(tmp_path / "package" / "facts.py"), "--lr", "0.1"]
    assert (cwd, first_on_path, name) == (str(tmp_path), str(tmp_path), "__main__")


def test_run_takes_the_command_line_of_torchrun(served: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regroup.api.cli", "run", "--server", served.url, "--standalone", "--nnodes=1:2"]
    command += ["--nproc_per_node", "1", "--max-restarts", "3", str(EXAMPLE), "--folder", "state", "--steps", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--standalone is ignored: regroup sets up the rendezvous" in done.stderr
    assert (tmp_path / "state" / "checkpoint.pt").exists()
    job = next(iter(served.client.jobs()))
    assert job.name.startswith("torchrun-ddp-") and job.state == "SUCCEEDED"
    assert served.client.get(job.id).spec.layout.dp.target == 2
