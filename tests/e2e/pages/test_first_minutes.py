"""A new user's first ten minutes with a server, in terminals of two widths: commands, and their output."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines.terminal import Terminal, squeeze
from tests.support.servers.regroup_server import Server, eventually

REGROUP = [sys.executable, "-m", "regroup.api.cli"]
WIDTHS = pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.slow)])
"""Both widths are in the fast tests of tests/api/cli, which need no cluster."""
PROGRAM = """
import os, sys, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rank, steps = os.environ["RANK"], int(sys.argv[1])
print("the program of rank", rank, flush=True)
print("a warning of rank", rank, file=sys.stderr, flush=True)
for step in range(steps):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    if step % 10 == 9:
        print("epoch", step // 10, "x" * 90, "end", flush=True)
    time.sleep(0.02 if steps < 1000 else 0.05)
"""
NO_REPRS = re.compile(r"\bNone\b|\{'|\[\{|Layout\(|\b[0-9a-f]{56}\b")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def name() -> str:
    return f"mine-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def environment(served: Server) -> dict[str, str]:
    return {"REGROUP_STATE_DIR": str(served.state)}


def typed(columns: int, environment: dict[str, str], *arguments: str | Path, code: int = 0) -> str:
    """Type a command; return what the terminal shows at its end."""
    with Terminal([*REGROUP, *arguments], columns=columns, environment=environment) as terminal:
        assert terminal.end(120) == code, terminal.screen.text
        return terminal.screen.text


@WIDTHS
def test_run_shows_the_output_of_the_program(
    columns: int, environment: dict[str, str], program: Path, name: str
) -> None:
    shown = typed(columns, environment, "run", "--name", name, "--nproc-per-node", "2", program, "60")
    joined = shown.replace("\n", "")
    assert "the program of rank 0" in shown and "a warning of rank 0" in shown and "of rank 1" not in shown
    assert [f"epoch {n} {'x' * 90} end" in joined for n in range(6)] == [True] * 6
    assert "2 ranks" in shown and "dp_shard" not in shown
    assert "loss" not in shown, "a chart without numbers"
    assert re.search(r"job_\w+ SUCCEEDED$", shown.rstrip())
    got = typed(columns, environment, "get", name)
    assert not NO_REPRS.search(got), got
    assert re.search(r"^nodes +local-\d: ", got, re.MULTILINE) and "MFU" not in got
    assert "60 of 60" not in got and re.search(r"^step +60$", got, re.MULTILINE)
    why = typed(columns, environment, "why", name)
    assert "communication" not in why and "Ended SUCCEEDED at step 60" in why


def test_the_output_in_a_pipe_is_only_that_of_the_program(
    environment: dict[str, str], program: Path, name: str
) -> None:
    done = subprocess.run(
        [*REGROUP, "run", "--name", name, program, "20"], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "the program of rank 0\n" + "".join(f"epoch {n} {'x' * 90} end\n" for n in range(2))
    assert "a warning of rank 0\n" in done.stderr and "state SUCCEEDED" in done.stderr


@WIDTHS
def test_ctrl_c_leaves_the_job_running_and_states_it(
    columns: int, environment: dict[str, str], served: Server, program: Path, name: str
) -> None:
    command = [*REGROUP, "run", "--name", name, program, "100000"]
    with Terminal(command, columns=columns, environment=environment) as terminal:
        terminal.wait_for("epoch 1", 120)
        terminal.interrupt()
        assert terminal.end() == 130
        output = squeeze(terminal.screen.text)
    assert squeeze(f"job {name} continues: `regroup watch {name}` shows it, `regroup cancel {name}` ends it") in output
    assert "Traceback" not in output
    assert served.client.get(name).state == "RUNNING"
    with Terminal([*REGROUP, "watch", name], columns=columns, environment=environment) as terminal:
        terminal.wait_for("RUNNING")
        terminal.wait_for("1 rank · generation 1")
        terminal.interrupt()
        assert terminal.end() == 130
    listed = typed(columns, environment, "jobs", "--state", "running", "--name", name)
    assert name in listed
    steps = typed(columns, environment, "steps", name)
    assert "per step (median of" in steps and len(steps.splitlines()) < 30
    typed(columns, environment, "cancel", name)
    assert served.client.wait(name, timeout_s=60).state == "CANCELLED"


@WIDTHS
def test_the_built_in_trainer_keeps_its_bar_and_shows_no_prediction_as_a_fact(
    columns: int, environment: dict[str, str], served: Server, spec, name: str
) -> None:
    job = served.client.submit(spec(name, steps=300))
    with Terminal([*REGROUP, "watch", name], columns=columns, environment=environment) as terminal:
        terminal.wait_for("tokens/s", 120)
        eventually(lambda: terminal.read() and re.search(r"━{4,}.*step \d+/300", terminal.screen.text))
        shown = terminal.screen.text
        assert "predicted" not in shown and "MFU" not in shown
        terminal.interrupt()
        assert terminal.end() == 130
    quiet = typed(columns, environment, "logs", name)
    assert squeeze("printed nothing to stdout") in squeeze(quiet)
    assert squeeze(f"`regroup watch {job.id}`") in squeeze(quiet)
    served.client.cancel(job.id)
    served.client.wait(job.id, timeout_s=60)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "own" / "state", nodes=1)
    server.state.parent.mkdir()
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_down_while_a_client_follows_prints_no_traceback(own_server: Server, program: Path) -> None:
    environment = {"REGROUP_STATE_DIR": str(own_server.state)}
    job = own_server.client.submit(
        {"name": "long", "workload": {"kind": "script", "entrypoint": str(program), "args": ["100000"]}}
    )
    eventually(lambda: own_server.client.get(job.id).state == "RUNNING", 120)
    commands = [["watch", job.id], ["logs", "-f", job.id], ["logs", "-f", "--stream", "stderr", job.id]]
    terminals = [Terminal([*REGROUP, *each], columns=100, environment=environment) for each in commands]
    try:
        terminals[0].wait_for("RUNNING")
        terminals[1].wait_for("epoch 0")
        terminals[2].wait_for("a warning of rank 0")
        own_server.down()
        assert "Traceback" not in own_server.log() and "ASGI" not in own_server.log(), own_server.log()
        assert "timeout graceful shutdown exceeded" not in own_server.log()
        terminals[0].wait_for("does not answer", 30)
    finally:
        for terminal in terminals:
            terminal.__exit__()


@pytest.mark.slow  # waits until Ray has not answered for long enough, twice
def test_a_dead_ray_address_ends_with_one_sentence_and_a_signal_ends_the_wait(tmp_path: Path) -> None:
    command = [*REGROUP, "serve", "--state-dir", tmp_path / "state", "--port", "0", "--ray-address", "127.0.0.1:1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    line = next(each for each in process.stdout if "does not answer yet" in each)
    assert "127.0.0.1:1" in line
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0, "the first signal ends it"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: no Ray cluster answers at 127.0.0.1:1 within 30 s (")
    assert "Traceback" not in done.stderr + done.stdout
