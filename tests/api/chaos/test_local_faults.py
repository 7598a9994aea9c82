"""Faults affect only marked processes of one state directory."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.service.domain.errors import NotFoundError

SLEEPS = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with the record of a cluster of two nodes."""
    record = {
        "id": "the-cluster", "address": "127.0.0.1:1", "dashboard_url": "", "temp_dir": str(tmp_path / "rg"),
        "token_path": "", "nodes": 2, "slots_per_node": 2, "daemons": [],
    }  # fmt: skip
    (tmp_path / "ray.json").write_text(json.dumps(record))
    return tmp_path


@pytest.fixture
def raylet(state: Path, no_leaks: None) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a process that resembles a node's raylet, with a child process."""
    with ExitStack() as stack:

        def start(node: int, cluster: str = "the-cluster") -> "subprocess.Popen[bytes]":
            socket_name = f"--raylet_socket_name={state / 'rg' / str(node)}/session/sockets/raylet"
            process = subprocess.Popen(
                [sys.executable, "-c", SLEEPS, socket_name],
                env={**os.environ, "REGROUP_RAY_CLUSTER": cluster}, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            stack.callback(end, process)
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            return process

        yield start


def end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        for pid in (*below(process.pid), process.pid):
            os.kill(pid, 9)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def becomes(pid: int, *states: str) -> None:
    deadline = time.monotonic() + 10
    while (now := state_of(pid)) not in states:
        assert time.monotonic() < deadline, now
        time.sleep(0.01)


def test_a_frozen_node_stops_with_all_its_processes_and_resumes(state: Path, raylet) -> None:
    injection, spared, foreign = raylet(1), raylet(2), raylet(1, "another-cluster")
    children = below(injection.pid)
    assert len(children) == 1
    faults = LocalFaults(state)
    frozen = faults.freeze_node("local-1")
    assert {process.pid for process in frozen.frozen} == {injection.pid, *children}
    for pid in (injection.pid, *children):
        becomes(pid, "T")
    assert state_of(spared.pid) == state_of(foreign.pid) == "S"
    faults.thaw(frozen)
    for pid in (injection.pid, *children):
        becomes(pid, "S")


def test_a_killed_node_loses_all_its_processes(state: Path, raylet) -> None:
    injection, spared = raylet(2), raylet(1)
    (child,) = below(injection.pid)
    LocalFaults(state).kill_node("local-2")
    becomes(injection.pid, "Z")
    becomes(child, "Z", "gone")
    assert state_of(spared.pid) == "S"
    with pytest.raises(NotFoundError, match="no node local-2"):
        LocalFaults(state).kill_node("local-2")


def test_faults_need_a_local_cluster(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="regroup serve --local-nodes"):
        LocalFaults(tmp_path).kill_node("local-1")
    with pytest.raises(NotFoundError, match="no server runs"):
        LocalFaults(tmp_path).kill_server()
