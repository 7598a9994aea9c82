"""Linux process facts: subreaper, death signals, descendants, what they compute, device locks."""

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
    """Orphans below this process become its children, so that it can see and end them (prctl(2))."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL this process when the thread that forked it ends; at once if `parent_pid` is gone already."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(1)


def outlive_parent() -> None:
    """Take back `die_with_parent`, for a process that ends by another sign."""
    if _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def children(pid: int) -> list[int]:
    """Direct children of a process, all threads counted; empty when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{task}/children").read_text()
                found += [int(word) for word in text.split()]
    return found


def descendants(pid: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Every process below `pid`, parents before children, but `spare` and what is below them."""
    found: list[int] = []
    frontier = [child for child in children(pid) if child not in spare]
    while frontier:
        found += frontier
        frontier = [grandchild for child in frontier for grandchild in children(child) if grandchild not in spare]
    return found


def descendants_by_scan(pid: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Every process below `pid`, from one look at all of /proc: slower than `descendants`, but misses nobody who
    changes parents meanwhile (the kernel's `children` lists may, while siblings exit)."""
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
    """Processor seconds that each of these processes, what is below it and their reaped children have used; 0 of what
    is gone. From one look at all of /proc, which costs less than one at the threads of each."""
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
    """Dead and waiting to be reaped by its parent, or gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def exit_code(child: int) -> int | None:
    """How a child of this process ended, negative for a signal; None while a thread of it lives. It is not reaped.

    Raises:
        ChildProcessError: it is no child, or reaped.
    """
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def thread_count() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def open_devices(prefix: str = "/dev/nvidia") -> list[str]:
    """Device files below `prefix` that this process holds open."""
    found: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith(prefix):
                found.append(target)
    return found


def hold_lock(path: Path) -> int:
    """Take the flock of a device for the rest of this process's life; a free lock proves its last holder dead.

    Raises:
        BlockingIOError: another rank still holds the device.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def boottime_s() -> float:
    """Monotonic seconds that count sleep: the clock of every lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def prefer_for_oom(score: int) -> None:
    """Set this process's oom_score_adj; silently kept where the kernel refuses (it only allows raising)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))


def _sum_below(root: int, below: Mapping[int, Sequence[int]], ticks: Mapping[int, int]) -> int:
    total, frontier = 0, [root]
    while frontier:
        total += sum(ticks.get(pid, 0) for pid in frontier)
        frontier = [child for pid in frontier for child in below.get(pid, ())]
    return total
