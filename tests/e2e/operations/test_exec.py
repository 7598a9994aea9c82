"""Commands next to the ranks of a running job. They see what the rank sees, and end with the client."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.exec import ExecExit, ExecOutput, ExecStarted
from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server, called, eventually

STANDS = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
print("generation", os.environ["REGROUP_GENERATION"], flush=True)
print("begun", file=sys.stderr, flush=True)
time.sleep(1000)
"""
LEAKS = """
import subprocess, sys, time
for detach in (False, True):
    subprocess.Popen([sys.argv[1], "-c", "import time; time.sleep(1000)"], executable=sys.executable,
                     start_new_session=detach)
print("started", flush=True)
time.sleep(1000)
"""
PRINTS_PLACE = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_PORT", "REGROUP_GENERATION", "MINE")
print(json.dumps([{name: os.environ[name] for name in names}, os.getcwd(), sys.executable]))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def job(served: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A script on 2 × 2 ranks that sleeps."""
    path = tmp_path_factory.mktemp("stands") / "train.py"
    path.write_text(STANDS)
    workload = {"kind": "script", "entrypoint": str(path)}
    job = served.client.submit({"name": "stands", "workload": workload, "layout": {"dp": 4}, "env": {"MINE": "1"}})
    eventually(lambda: served.client.get(job.id).state == "RUNNING")
    yield job
    served.client.cancel(job.id)
    served.client.wait(job.id, timeout_s=60)


def regroup(served: Server, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run the command line with this server's address."""
    command = [sys.executable, "-m", "regroup.api.cli", *arguments[:1], "--server", served.url, *arguments[1:]]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)


def test_a_command_sees_what_the_rank_sees_and_returns_its_exit_code(served: Server, job: Job) -> None:
    done = regroup(served, "exec", job.id, "--rank", "3", "--", "python", "-c", PRINTS_PLACE)
    assert (done.returncode, done.stderr) == (3, b"to stderr\n"), done
    env, cwd, executable = json.loads(done.stdout)
    assert {name: env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MINE")} == {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "1", "MINE": "1",
    }  # fmt: skip
    assert cwd == str(Path(job.spec.workload.entrypoint).parent)  # type: ignore[union-attr, arg-type]
    assert Path(executable).parent == Path(sys.executable).parent
    ranks = served.client.stacks(job.id)
    environ = Path(f"/proc/{ranks[3].pid}/environ")
    assert environ.exists(), "the rank continues"


def test_input_errors_and_limits_are_those_of_a_shell(served: Server, job: Job) -> None:
    data = bytes(range(256)) * 100
    done = regroup(served, "exec", job.id, "--stdin", "--", "cat", input=data)
    assert (done.returncode, done.stdout) == (0, data)
    assert regroup(served, "exec", job.id, "--", "no-such-command").returncode == 127
    done = regroup(served, "exec", job.id, "--timeout", "1s", "--", "sleep", "100")
    assert done.returncode == 124 and b"it reached its --timeout" in done.stderr
    done = regroup(served, "exec", job.id, "--rank", "4", "--", "true")
    assert done.returncode == 4 and b"ranks 0 to 3" in done.stderr


@pytest.mark.slow
def test_a_hundred_megabytes_pass_through_and_are_not_stored(served: Server, job: Job) -> None:
    size = 100_000_000
    agents = [f"/proc/{pid}/status" for pid in served.agents()]
    watched = [*agents, f"/proc/{served.pid}/status"]
    assert len(watched) == 3
    before = [resident(path) for path in watched]
    latencies: list[float] = []
    total = 0
    for event in served.client.exec(job.id, ["head", "-c", str(size), "/dev/zero"], rank=2):
        if isinstance(event, ExecOutput):
            total += len(event.data)
            if total % (8 * 1024 * 1024) < len(event.data):
                started = time.monotonic()
                served.client.get(job.id)
                latencies.append(time.monotonic() - started)
    assert total == size and isinstance(event, ExecExit) and event.code == 0
    grown = [resident(path) - was for path, was in zip(watched, before, strict=True)]
    assert max(grown) < 40_000_000, grown
    assert latencies and max(latencies) < 2.0, latencies


def resident(status: str) -> int:
    """Return the bytes of memory that a process uses."""
    (line,) = [line for line in Path(status).read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_a_client_that_disconnects_ends_the_command_and_its_children(served: Server, job: Job) -> None:
    title = f"leaked-{uuid.uuid4().hex}"
    events = served.client.exec(job.id, ["python", "-c", LEAKS, title])
    assert isinstance(next(events), ExecStarted)
    assert next(event for event in events if isinstance(event, ExecOutput)).data.startswith(b"started")
    assert len(called(title)) == 2
    events.close()  # type: ignore[attr-defined]
    eventually(lambda: not called(title), 15)


def test_an_agent_that_is_killed_leaves_no_command(served: Server, job: Job) -> None:
    title = f"leaked-{uuid.uuid4().hex}"
    events = served.client.exec(job.id, ["python", "-c", LEAKS, title], rank=1)
    assert next(event for event in events if isinstance(event, ExecOutput)).data.startswith(b"started")
    before = served.client.get(job.id).generation
    agents = served.agents()
    assert len(agents) == 2, agents
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not called(title), 15)
    last = list(events)[-1]
    assert isinstance(last, ExecExit) and last.why == "lost", last
    eventually(lambda: (now := served.client.get(job.id)).generation > before and now.state == "RUNNING")


def test_a_command_survives_a_new_generation_and_ends_with_the_job(served: Server, job: Job) -> None:
    events = served.client.exec(job.id, ["sh", "-c", "echo a; while :; do (exec /bin/true) || echo lost; done"], rank=1)
    assert isinstance(next(events), ExecStarted)
    assert next(events) == ExecOutput.model_construct(stream="stdout", data=b"a\n")
    before = served.client.get(job.id)
    received: list[str] = []
    of_one = served.client.logs(job.id, rank=1, generation=before.generation, follow=True)
    following = threading.Thread(target=lambda: received.extend(of_one))
    following.start()
    eventually(lambda: received)
    time.sleep(1.0)
    assert following.is_alive(), "the generation runs, so more output may come"
    os.kill(served.client.stacks(job.id)[1].pid, signal.SIGKILL)
    after = eventually(lambda: (now := served.client.get(job.id)).generation > before.generation and now)
    eventually(lambda: served.client.get(job.id).state == "RUNNING")
    following.join(20)
    assert not following.is_alive() and received == [f"generation {before.generation}\n"]
    assert_kept(served, job, before.generation)
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(events))
    reading.start()
    time.sleep(0.5)
    assert reading.is_alive() and not found, "the command continues, and lost no child"
    shown = regroup(served, "exec", job.id, "--rank", "1", "--", "sh", "-c", "echo $REGROUP_GENERATION")
    assert int(shown.stdout) == after.generation
    assert [event.data["rank"] for event in served.client.events(job.id) if event.type == "exec"][-2:] == [1, 1]
    served.client.cancel(job.id)
    reading.join(30)
    assert not reading.is_alive()
    assert isinstance(found[-1], ExecExit) and found[-1].why in ("ended", "lost"), found
    served.client.wait(job.id, timeout_s=60)
    eventually(lambda: not served.agents(), 30)
    assert_kept(served, job, before.generation)


def assert_kept(served: Server, job: Job, first: int) -> None:
    """Check that output of rank 1 is separate by generation and by stream."""
    for generation in (first, first + 1):
        printed = "".join(served.client.logs(job.id, rank=1, generation=generation))
        assert printed == f"generation {generation}\n"
        assert "begun\n" in "".join(served.client.logs(job.id, rank=1, generation=generation, stream="stderr"))
