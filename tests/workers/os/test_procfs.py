"""Processor time of processes and their descendants, and exit codes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regroup.workers.os import procfs

FORKS_AND_COMPUTES = "import os, time\nif os.fork() == 0:\n    while True: pass\ntime.sleep(1000)"


def test_processor_time_of_descendants_counts_for_a_process() -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", source], start_new_session=True)
        for source in (FORKS_AND_COMPUTES, "import time; time.sleep(1000)")
    ]
    try:
        pids, deadline = [process.pid for process in started], time.monotonic() + 30
        before = procfs.computed_s(pids)
        while (now := procfs.computed_s(pids))[pids[0]] < before[pids[0]] + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert now[pids[0]] >= before[pids[0]] + 1
        assert now[pids[1]] < before[pids[1]] + 0.5
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()
    assert procfs.computed_s([pids[0]]) == {pids[0]: 0}


def test_the_exit_code_of_a_child_is_available_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"], stdin=subprocess.PIPE)
    assert procfs.exit_code(child.pid) is None
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.exit_code(child.pid) == procfs.exit_code(child.pid) == -signal.SIGKILL
    child.communicate()
    with pytest.raises(ChildProcessError):
        procfs.exit_code(child.pid)
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"])
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.exit_code(other.pid) == 3
    other.wait()
