"""Kill subtrees of real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os import procfs

# A semaphore of the spawn method has a name; the tracker of the process that made it removes it in the end.
NAMES_A_SEMAPHORE = """
import multiprocessing, os, sys, time
from pathlib import Path
before = set(os.listdir("/dev/shm"))
lock = multiprocessing.get_context("spawn").Lock()
draft = Path(sys.argv[1] + ".draft")
draft.write_text("\\n".join(set(os.listdir("/dev/shm")) - before))
draft.rename(sys.argv[1])
time.sleep(1000)
"""
ROOT = """
import subprocess, sys
from regroup.workers.os import kill_tree, procfs
procfs.become_subreaper()
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
sys.stdin.readline()
print(kill_tree.kill_subtree(__import__("os").getpid(), frozenset(), 5.0), flush=True)
sys.stdin.readline()
"""


# Each killed process leaves a detached child, and forks as long as it lives.
FORKS = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
"""
INSPECTS_CHILDREN = """
import os, subprocess, sys, time
from regroup.workers.os import kill_tree, procfs
procfs.become_subreaper()
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
while len(procfs.descendants(os.getpid())) < 20:
    time.sleep(0.01)

def living():
    while True:
        children = procfs.children(os.getpid())
        found = [pid for pid in children if procfs.exit_code(pid) is None]
        if found or children == procfs.children(os.getpid()):
            return found

print(kill_tree.kill_subtree(os.getpid(), frozenset(), 5.0, living), living())
print({procfs.is_zombie(pid) for pid in procfs.descendants_by_scan(os.getpid())})
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that kills its descendants on request."""
    command = [sys.executable, "-c", ROOT, NAMES_A_SEMAPHORE, str(tmp_path / "named")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def test_names_in_shared_memory_of_killed_processes_are_removed(root: subprocess.Popen[str], tmp_path: Path) -> None:
    assert root.stdin is not None and root.stdout is not None
    deadline = time.monotonic() + 30
    while not (named := tmp_path / "named").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    names = [name for name in named.read_text().split() if name.startswith("sem.mp-")]
    assert names and len(procfs.descendants(root.pid)) == 2, "the process and its tracker"
    root.stdin.write("\n")
    root.stdin.flush()
    assert root.stdout.readline() == "[]\n"
    assert not set(names) & set(os.listdir("/dev/shm"))


def test_a_process_that_forks_while_it_is_killed_leaves_no_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSPECTS_CHILDREN, FORKS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[] []\n{True}\n"
