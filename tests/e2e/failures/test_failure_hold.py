"""A failed job is held as it failed, even if server and supervisor die, until its time ends or a user releases it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.exec import ExecExit, ExecOutput
from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server, end, eventually

BREAKS = """
import os, pathlib, time
pathlib.Path("left-behind").write_text("me")
print("about to break", flush=True)
other = pathlib.Path(__file__).with_name("rank-0-runs")
if os.environ["RANK"] == "1":
    while not other.exists():  # so that the stack of rank 0 is in this file
        time.sleep(0.01)
    raise ValueError("broken")
other.touch()
time.sleep(1000)
"""


def held(served: Server, job: Job) -> Any:
    """Return the condition that reports the hold."""
    conditions = served.client.get(job.id).conditions
    return next((condition for condition in conditions if condition.type == "Held"), None)


def output(served: Server, job: Job, *command: str) -> tuple[str, int]:
    """Return the output and the exit code of a command next to rank 1."""
    *events, last = served.client.exec(job.id, command, rank=1)
    assert isinstance(last, ExecExit)
    return b"".join(event.data for event in events if isinstance(event, ExecOutput)).decode(), last.code


def test_a_failed_job_can_be_inspected_until_it_is_released(served: Server, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BREAKS)
    workload = {"kind": "script", "entrypoint": str(path)}
    spec = {"name": "breaks", "workload": workload, "layout": {"dp": 2}, "hold_on_failure": "10m"}
    job = served.client.submit(spec)
    condition = eventually(lambda: held(served, job))
    assert condition.status and "kept until" in condition.message
    # The hold is recorded before the state: a supervisor that dies in between must still hold the nodes.
    eventually(lambda: served.client.get(job.id).state == "DRAINING")
    now = served.client.get(job.id)
    assert (now.state, now.reason) == ("DRAINING", "user_error") and now.error is not None
    eventually(lambda: served.client.stacks(job.id))
    (rank_0, *_) = [stack.text for stack in served.client.stacks(job.id) if stack.rank == 0]
    assert "train.py" in rank_0, "the place of the rank before it was ended"
    assert output(served, job, "cat", "left-behind") == ("me", 0)
    assert output(served, job, "sh", "-c", "echo $RANK/$WORLD_SIZE; exit 4") == ("1/2\n", 4)
    assert "".join(served.client.logs(job.id, rank=1)) == "about to break\n"
    why = served.client.why(job.id)
    assert "kept until" in why.summary and any("regroup release" in advice for advice in why.advice)

    end(served.processes("ray::SupervisorActor")[0])
    served.kill()
    served.start()
    assert held(served, job).message == condition.message
    eventually(lambda: served.processes("ray::SupervisorActor"))
    assert output(served, job, "cat", "left-behind") == ("me", 0)
    assert served.client.get(job.id).state == "DRAINING"

    command = [sys.executable, "-m", "regroup.api.cli", "release", "--server", served.url, job.id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "releasing its nodes" in done.stdout
    ended = served.client.wait(job.id, timeout_s=60)
    assert (ended.state, ended.reason, ended.message) == ("FAILED", "user_error", "rank 1: ValueError: broken")
    assert ended.error is not None and "ValueError: broken" in ended.error["traceback"]
    assert not ended.conditions
    eventually(lambda: not served.agents(), 30)
    assert served.client.why(job.id).seconds["held"] > 1


@pytest.mark.slow
def test_a_hold_ends_after_its_time_and_leaves_nothing(served: Server, spec: Callable[..., dict[str, Any]]) -> None:
    fault = {"at": {"rank": 1, "step": 3, "phase": "forward"}, "do": "raise"}
    job = served.client.submit(spec("breaks-builtin", faults=[fault], hold_on_failure="3s"))
    eventually(lambda: held(served, job))
    assert output(served, job, "python", "-c", "import os; print(os.environ['RANK'])") == ("1\n", 0)
    ended = served.client.wait(job.id, timeout_s=30)
    assert (ended.state, ended.reason) == ("FAILED", "user_error")
    assert 2.5 < served.client.why(job.id).seconds["held"] < 15
    eventually(lambda: not served.agents(), 30)
