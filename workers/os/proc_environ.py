"""Arguments and environment of a process since its last exec. The environment marks the processes that it starts."""

import time
from pathlib import Path

_EXEC_S = 10.0
_FLAGS, _ENV_END = 5, 47
"""Indexes of fields of proc_pid_stat(5) after the state. The end of the environment is 0 until exec has written it."""
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""


def variables(pid: int) -> list[bytes]:
    """Return `NAME=value` of each variable since the last exec of a process.

    During an exec the kernel shows no variables, for seconds if the program comes from a slow disk. The call waits for
    the end of the exec. Otherwise a process that was just started would seem to belong to another job.

    Raises:
        OSError: The process is gone, a zombie, a kernel thread, or another user's. Before Linux 6.14 zombies and kernel
            threads have no variables instead.
    """
    environ = Path("/proc", str(pid), "environ")
    if found := environ.read_bytes():
        return _words(found)
    deadline = time.monotonic() + _EXEC_S
    while _in_exec(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    return _words(environ.read_bytes())


def arguments(pid: int) -> list[bytes]:
    """Return the words of the command line of a process.

    Raises:
        OSError: As for `variables`.
    """
    cmdline = Path("/proc", str(pid), "cmdline")
    if found := cmdline.read_bytes():
        return _words(found)
    variables(pid)  # waits for the end of an exec, and raises if there is none
    return _words(cmdline.read_bytes())


def _in_exec(pid: int) -> bool:
    state, *fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    has_memory = state not in "ZX" and not int(fields[_FLAGS]) & _KERNEL_THREAD
    return has_memory and fields[_ENV_END] == "0"


def _words(found: bytes) -> list[bytes]:
    return found.removesuffix(b"\0").split(b"\0") if found else []
