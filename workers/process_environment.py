"""The environment of a process, by which what it started is found again, however it detached."""

import time
from pathlib import Path

_EXEC_S = 10.0
_ENV_END = 48
"""Of proc_pid_stat(5), counted from the state: where the environment ends in memory; 0 until exec has put it there."""


def variables(pid: int) -> list[bytes]:
    """`NAME=value` of each variable as of its last exec.

    In the middle of an exec the kernel shows none (for seconds, when the program comes from a slow disk): waited out,
    or a process that was started this moment would be taken for somebody else's.

    Raises:
        OSError: it is gone, a zombie, a kernel thread, or another user's.
    """
    process = Path("/proc", str(pid))
    found = (process / "environ").read_bytes()
    if not found:
        deadline = time.monotonic() + _EXEC_S
        while _in_exec(process) and time.monotonic() < deadline:
            time.sleep(0.001)
        found = (process / "environ").read_bytes()
    return found.split(b"\0")[:-1]


def _in_exec(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[_ENV_END] == "0"
