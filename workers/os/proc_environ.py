"""What exec gave a process: its arguments, and its environment, by which what it started is found again."""

import time
from pathlib import Path

_EXEC_S = 10.0
_FLAGS, _ENV_END = 5, 47
"""Of proc_pid_stat(5), counted from behind the state. Where the environment ends is 0 until exec has put it there."""
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""


def variables(pid: int) -> list[bytes]:
    """`NAME=value` of each variable as of its last exec.

    In the middle of an exec the kernel shows none (for seconds, when the program comes from a slow disk): waited out,
    or a process that was started this moment would be taken for somebody else's.

    Raises:
        OSError: it is gone, a zombie, a kernel thread, or another user's. Before Linux 6.14 the second and third just
            have no variables.
    """
    environ = Path("/proc", str(pid), "environ")
    if found := environ.read_bytes():
        return _words(found)
    deadline = time.monotonic() + _EXEC_S
    while _in_exec(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    return _words(environ.read_bytes())


def arguments(pid: int) -> list[bytes]:
    """The words of its command line.

    Raises:
        OSError: it is gone; or it shows none, for one of the reasons above.
    """
    cmdline = Path("/proc", str(pid), "cmdline")
    if found := cmdline.read_bytes():
        return _words(found)
    variables(pid)  # waits out an exec, and raises where there is nothing to wait for
    return _words(cmdline.read_bytes())


def _in_exec(pid: int) -> bool:
    state, *fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    has_memory = state not in "ZX" and not int(fields[_FLAGS]) & _KERNEL_THREAD
    return has_memory and fields[_ENV_END] == "0"


def _words(found: bytes) -> list[bytes]:
    return found.removesuffix(b"\0").split(b"\0") if found else []
