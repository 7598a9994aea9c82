"""Linux process facts: subreaper, death signals, descendants, their processor time, device locks."""

import contextlib
import ctypes
import fcntl
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make this process adopt the orphans below it, so that it can find and kill them (prctl(2))."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends; exit at once if `parent_pid` is gone."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(1)


def outlive_parent() -> None:
    """Cancel `die_with_parent`, for a process that ends on another signal."""
    if _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def children(pid: int) -> list[int]:
    """Return the direct children of a process, of all its threads; empty if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{task}/children").read_text()
                found += [int(word) for word in text.split()]
    return found


def descendants(pid: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Return every process below `pid`, parents before children, except `spare` and their descendants."""
    found: list[int] = []
    frontier = [child for child in children(pid) if child not in spare]
    while frontier:
        found += frontier
        frontier = [grandchild for child in frontier for grandchild in children(child) if grandchild not in spare]
    return found


def descendants_by_scan(pid: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Return every process below `pid`, from one scan of /proc.

    This is slower than `descendants`, but it also finds processes that change parents during the scan. The kernel's
    `children` lists may miss those while siblings exit.
    """
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                if int(entry) not in spare:
                    below.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found: list[int] = []
    frontier = below.get(pid, [])
    while frontier:
        found += frontier
        frontier = [grandchild for child in frontier for grandchild in below.get(child, [])]
    return found


def computed_s(roots: Iterable[int]) -> dict[int, float]:
    """Return the processor seconds of each process, its descendants and their reaped children; 0 for one that is gone.

    One scan of /proc costs less than a scan of the threads of each process.
    """
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                below.setdefault(int(words[1]), []).append(int(entry))
                ticks[int(entry)] = sum(int(word) for word in words[11:15])
    return {root: _sum_below(root, below, ticks) / os.sysconf("SC_CLK_TCK") for root in roots}


def is_zombie(pid: int) -> bool:
    """Return True if the process is gone, or dead and not yet reaped by its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def exit_code(child: int) -> int | None:
    """Return the exit code of a child without reaping it: negative for a signal, None while one of its threads lives.

    Raises:
        ChildProcessError: The process is not a child, or was reaped.
    """
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def own_memory_bytes(pid: int) -> int:
    """Return the memory of a process that belongs to no file, with what it shares since a fork; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def thread_count() -> int:
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def lock_device(path: Path) -> int:
    """Lock a device until this process ends. A free lock proves that its last holder is dead.

    Raises:
        BlockingIOError: Another rank still holds the device.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def boottime_s() -> float:
    """Return monotonic seconds that include suspend time: the clock of every lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def prefer_for_oom(score: int) -> None:
    """Set oom_score_adj of this process, unless the kernel refuses: it only allows raising the score."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))


def _sum_below(root: int, below: Mapping[int, Sequence[int]], ticks: Mapping[int, int]) -> int:
    total, frontier = 0, [root]
    while frontier:
        total += sum(ticks.get(pid, 0) for pid in frontier)
        frontier = [child for pid in frontier for child in below.get(pid, ())]
    return total
