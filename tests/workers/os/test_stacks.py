"""Stacks of real processes: one that computes, one that holds the interpreter's lock, one that is stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os import stacks

PROGRAM = """
import ctypes, sys, threading, time
from pathlib import Path
from regroup.workers.os import stacks

first_ready = threading.Event()

def ready():
    print("ready", flush=True)
    first_ready.set()

def computing():
    ready()
    while True:
        pass

def holding_the_lock():
    ready()
    while True:
        ctypes.PyDLL(None).sleep(1000)  # unlike CDLL it keeps the lock

def waiting():
    ready()
    time.sleep(1000)

stacks.answer(Path(sys.argv[2]))
threading.Thread(target=waiting, daemon=True).start()
first_ready.wait()
globals()[sys.argv[1]]()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[str]], what: str, path: Path) -> int:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, what, str(path)], stdout=subprocess.PIPE, text=True)
    started.append(process)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2, "each thread is where it stays"
    return process.pid


@pytest.mark.parametrize("what", ["computing", "holding_the_lock", "waiting"])
def test_every_thread_is_shown_whatever_the_process_does(
    what: str, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    pid = start(started, what, tmp_path / "stacks")
    for _ in range(2):
        text = stacks.request(pid, tmp_path / "stacks")
        assert f"in {what}" in text and "in waiting" in text
        assert text.count("most recent call first") == 2, "two threads, and nothing of the time before"


def test_a_stopped_process_is_reported(started: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    pid = start(started, "computing", tmp_path / "stacks")
    os.kill(pid, signal.SIGSTOP)
    assert "is stopped by a signal" in stacks.request(pid, tmp_path / "stacks")


def test_a_process_that_has_ended_is_reported(started: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    pid = start(started, "computing", tmp_path / "stacks")
    started[0].kill()
    started[0].wait()
    assert "has ended" in stacks.request(pid, tmp_path / "stacks")


INTERRUPTED = """
import os, signal, sys, time
from pathlib import Path
from regroup.workers.os import stacks

fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(*_):
    os.write(fd, b"Thread 0x01 (most recent call first):\\n  File \\"a.py\\", line 1 in first\\n\\n")
    time.sleep(0.4)  # a busy machine runs another process here
    os.write(fd, b"Current thread 0x02 (most recent call first):\\n  File \\"b.py\\", line 2 in last\\n")

signal.signal(stacks.SIGNAL, write)  # as in a process that answers; the loop below takes the signals one by one
signal.pthread_sigmask(signal.SIG_BLOCK, [stacks.SIGNAL])
print("ready", flush=True)
while True:
    signal.sigwait([stacks.SIGNAL])
    write()
"""


def test_stacks_that_are_written_in_pieces_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "stacks"
    command = [sys.executable, "-c", INTERRUPTED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        text = stacks.request(process.pid, path)
        process.kill()
    assert "in first" in text and "in last" in text
    assert text.count("most recent call first") == 2


def test_a_process_without_the_handler_gets_no_signal(tmp_path: Path) -> None:
    """Create the file first, as an agent does: it may exist before the process has started its handler."""
    path = tmp_path / "stacks.txt"
    path.touch()
    process = subprocess.Popen(["sleep", "1000"])
    try:
        assert "has not started its handler yet" in stacks.request(process.pid, path)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
