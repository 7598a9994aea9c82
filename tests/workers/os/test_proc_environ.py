"""Arguments and environment of a process are visible from its first moment."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from regroup.workers.os.proc_environ import arguments, variables


def test_variables_are_visible_while_the_program_is_loaded(tmp_path: Path) -> None:
    program = str(shutil.copy(shutil.which("sleep") or "sleep", tmp_path / "cold"))
    with Path(program).open("rb") as file:
        os.fsync(file.fileno())
        for number in range(50):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # a private copy: no other process maps it
            process = subprocess.Popen([program, "60"], env={"NUMBER": str(number)})
            try:
                if number % 2:
                    assert arguments(process.pid) == [program.encode(), b"60"]
                assert variables(process.pid) == [f"NUMBER={number}".encode()]
            finally:
                process.kill()
                process.wait()


def test_a_process_without_variables_causes_no_wait() -> None:
    process = subprocess.Popen([shutil.which("sleep") or "sleep", "60"], env={})
    began = time.monotonic()
    assert variables(process.pid) == []
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    for read in (variables, arguments):
        with contextlib.suppress(OSError):  # newer kernels raise
            assert read(process.pid) == []
    process.wait()
    assert time.monotonic() - began < 5
