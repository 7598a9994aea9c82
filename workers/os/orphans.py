"""Kill the processes that a dead zygote or agent left on this node, with proof of death."""

import contextlib
import os
import time
from pathlib import Path

from regroup.workers.os import job_users, kill_tree, process_user, procfs
from regroup.workers.os.proc_environ import variables

VARIABLE = "REGROUP_SCRATCH"
"""Variable of every rank with the scratch folder of its job on its node. Programs that ranks start inherit it."""


def kill_remains(scratch: Path, deadline_s: float = 5.0) -> list[int]:
    """Kill every process of this job on this node that is not below this one; return those that outlive the deadline.

    The scratch folder identifies them: as working folder, in an open file, or in the environment. So does the job's
    user, if the job has one of its own.
    """
    end = time.monotonic() + deadline_s
    user = job_users.find(scratch)
    while True:
        left = [pid for pid in _pids() if _is_of(pid, str(scratch), user) and not procfs.is_zombie(pid)]
        # After the scan: processes that started during it are ours.
        ours = {os.getpid(), *procfs.descendants_by_scan(os.getpid())}
        left = [pid for pid in left if pid not in ours]
        if not left or time.monotonic() > end:
            return left
        kill_tree.kill(left)
        time.sleep(0.005)


def in_use(scratch: Path) -> bool:
    """Return True if a process of a job lives on this node, identified as in `kill_remains`."""
    user = job_users.find(scratch)
    return any(_is_of(pid, str(scratch), user) and not procfs.is_zombie(pid) for pid in _pids() if pid != os.getpid())


def kill_orphans(zygote_pid: int, spare: frozenset[int]) -> list[int]:
    """Kill the former descendants of a dead zygote, which are now below this process (a subreaper)."""
    deadline = time.monotonic() + 5
    kill_tree.kill([zygote_pid])
    stuck: list[int] = []
    while time.monotonic() < deadline:
        stuck = kill_tree.kill_subtree(os.getpid(), spare, 1.0)
        below = [pid for pid in procfs.children(os.getpid()) if pid not in spare]
        for pid in below:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not stuck and not below:
            return []
        time.sleep(0.005)
    return stuck


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_of(pid: int, scratch: str, user: int | None) -> bool:
    if user is not None and process_user.real_user(pid) == user:
        return True
    process = Path("/proc", str(pid))
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        if f"{VARIABLE}={scratch}".encode() in variables(pid):
            return True
        if _is_below(os.readlink(process / "cwd"), scratch):
            return True
        for fd in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                if _is_below(os.readlink(process / "fd" / fd), scratch):
                    return True
    return False


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith((f"{folder}/", f"{folder} (deleted)"))
