"""Linux process facts and the end of a subtree: subreaper, death signals, descendants, device locks."""

import contextlib
import ctypes
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_JANITORS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
"""In the command lines of processes that remove named semaphores and shared memory when their users are gone."""
_JANITORS_END_S = 1.0
_LOOK_AGAIN_S = 0.02
"""Until then those who were killed are waited for without a look into /proc: the kernel drops what it has cached of a
process's part of /proc when that is reaped, and may take seconds for it while others go on looking there."""
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


def computed_s(pid: int) -> float:
    """Processor seconds that a process, what is below it and their reaped children have used; 0 of what is gone."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{each}/stat").read_text()
            ticks += sum(int(word) for word in stat.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def is_zombie(pid: int) -> bool:
    """Dead and waiting to be reaped by its parent, or gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def _exists(pid: int) -> bool:
    """Zombies do, until they are reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def kill(pids: Iterable[int]) -> None:
    """SIGKILL each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_subtree(
    root: int, spare: frozenset[int], deadline_s: float, reap: Callable[[], bool] = lambda: False
) -> list[int]:
    """End everything below `root` but `spare` and what is below them; return pids that outlive the deadline.

    `reap`: of a caller that is `root` itself and a subreaper: reaps what is dead, and returns whether it has no child
    any more, dead or alive. Then nothing is below it, which no look into /proc could show better.

    Repeats until a look finds nothing alive: a process that forks while it is being killed leaves a child, which the
    next look finds under the subreaper. What `spare` have forked is never looked at, so that nobody is taken for
    another's whom they fork during the look; it stays below them if they are subreapers. Processes that only clean up
    after others, and end with them, come last: what they would remove from shared memory would be left for ever.
    Without `reap`, the caller reaps its own children afterwards.
    """
    end = time.monotonic() + deadline_s
    patience = _Patience(min(_JANITORS_END_S, deadline_s / 2))
    while not reap():
        alive = [pid for pid in descendants(root, spare) if not is_zombie(pid)]
        if not alive:
            alive = [pid for pid in descendants_by_scan(root, spare) if not is_zombie(pid)]
        if not alive or time.monotonic() > end:
            return alive
        kill(patience.without_janitors(alive))
        look_again_s = time.monotonic() + _LOOK_AGAIN_S
        while any(_exists(pid) for pid in alive) and time.monotonic() < look_again_s:
            time.sleep(0.001)
            reap()
    return []


class _Patience:
    """Leaves janitors alone for a while after all others are dead."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._known: dict[int, bool] = {}
        self._alone_since_s: float | None = None

    def without_janitors(self, alive: list[int]) -> list[int]:
        others = [pid for pid in alive if not self._is_janitor(pid)]
        if others:
            return others
        now_s = time.monotonic()
        self._alone_since_s = self._alone_since_s or now_s
        return alive if now_s - self._alone_since_s > self._patience_s else []

    def _is_janitor(self, pid: int) -> bool:
        if pid not in self._known:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                command = b""
            self._known[pid] = any(name in command for name in _JANITORS)
        return self._known[pid]


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
