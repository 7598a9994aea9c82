"""The line of a crash is found in real dumps of Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from regroup.service.policy.recovery.classify import ProcessExit, classify_failure
from regroup.service.policy.recovery.crash_place import find_crash_place

PROGRAM = """
import ctypes, faulthandler, json, threading, time
faulthandler.enable(file=2)

def crash(value):
    {crash}

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
crash(1)
"""
CRASHES = {"abort": "ctypes.CDLL(None).abort()", "violation": "ctypes.string_at(0)"}


def dump(tmp_path: Path, crash: str) -> str:
    path = tmp_path / "step.py"
    path.write_text(PROGRAM.format(crash=crash))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode < 0
    return f"[enforce fail] 668 vs 16\n{done.stderr}"


@pytest.mark.parametrize("crash", CRASHES.values(), ids=list(CRASHES))
def test_the_place_is_the_newest_line_outside_of_libraries(tmp_path: Path, crash: str) -> None:
    assert find_crash_place(dump(tmp_path, crash)) == "step.py, line 6, in crash"


def test_without_a_frame_or_a_dump_there_is_no_place() -> None:
    assert find_crash_place("Aborted (core dumped)") is None
    assert (
        find_crash_place("Fatal Python error: Aborted\n\nThread 0x00 (most recent call first):\n  <no frame>") is None
    )


def test_a_program_that_consists_of_libraries_has_its_newest_frame() -> None:
    frames = (
        '  File "/v/lib/python3.11/site-packages/a.py", line 3 in f\n  File "/v/lib/python3.11/runpy.py", line 9 in g'
    )
    text = f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n{frames}\n"
    assert find_crash_place(text) == "a.py, line 3, in f"


def test_the_cause_of_a_crash_names_the_line(tmp_path: Path) -> None:
    text = dump(tmp_path, CRASHES["violation"])
    cause = classify_failure([], [ProcessExit(3, -11, 1.0, "n", stderr_tail=text)], [])
    assert cause.summary == "rank 3 killed by signal 11 at step.py, line 6, in crash"
    assert ProcessExit(-2, -11, 1.0, "n", stderr_tail=text).crash_place is None
