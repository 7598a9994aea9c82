"""Processes of a killed agent are found by its scratch folder and killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os.orphans import VARIABLE, kill_remains

SLEEPS = [sys.executable, "-c", "import time; time.sleep(1000)"]


@pytest.fixture
def others(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start processes that are not descendants of a successor, and one of another node."""
    scratch, other = tmp_path / "regroup-j-node1", tmp_path / "regroup-j-node12"
    for folder in (scratch, other):
        folder.mkdir()
    lock = (scratch / "device-0.lock").open("w")
    options_of = {
        "by folder": {"cwd": scratch},
        "by file": {"pass_fds": [lock.fileno()]},
        "by environment": {"env": {**os.environ, VARIABLE: str(scratch)}},
        "of another node": {"cwd": other, "env": {**os.environ, VARIABLE: str(other)}},
    }
    started = {
        name: subprocess.Popen(SLEEPS, start_new_session=True, **options) for name, options in options_of.items()
    }
    lock.close()
    (scratch / "device-0.lock").unlink()  # as the successor does before it scans
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def test_all_processes_of_a_dead_agent_on_this_node_are_killed(
    others: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    # These are not descendants of a successor, so the call runs in another process.
    code = "import sys; from pathlib import Path; from regroup.workers.os import orphans; "
    code += "print(orphans.kill_remains(Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path / "regroup-j-node1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
    deadline = time.monotonic() + 5
    while [name for name, process in others.items() if process.poll() is None] != ["of another node"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_descendants_of_this_process_are_spared(others: dict[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    assert kill_remains(tmp_path / "regroup-j-node1") == []
    assert all(process.poll() is None for process in others.values())
