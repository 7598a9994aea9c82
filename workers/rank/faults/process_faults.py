"""What rehearsed failures do to the process they inject: the real thing, so that what meets it is real too."""

import contextlib
import ctypes
import os
import resource
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

_FOR_EVER_S = 365 * 86400.0
_OOM_LIMIT_BYTES = 64 * 1024**2
_OOM_PIECE_BYTES = 4 * 1024**2
_OOM_PREFIX = "regroup-oom-"
_MEMBERS = "cgroup.procs"
_CGROUPS = Path("/sys/fs/cgroup")


def segfault() -> None:
    """Read address 0."""
    _no_core_file()
    ctypes.string_at(0)


def abort() -> NoReturn:
    """As a failed assertion of a C++ library ends a process."""
    _no_core_file()
    os.abort()


def loop() -> NoReturn:
    """Compute without end, in Python."""
    while True:
        pass


def sleep(duration_s: float | None) -> None:
    """Wait without using the processor, as on a lock or a disk; None: for ever."""
    time.sleep(_FOR_EVER_S if duration_s is None else duration_s)


def hold_gil(duration_s: float | None) -> None:
    """Wait inside C without letting other threads of Python run; None: for ever."""
    wait = ctypes.PyDLL(None).sleep  # unlike CDLL it keeps the lock
    until_s = time.monotonic() + (_FOR_EVER_S if duration_s is None else duration_s)
    while (left_s := until_s - time.monotonic()) > 0:
        if left_s < 1:
            ctypes.PyDLL(None).usleep(int(1e6 * left_s))
        else:
            wait(int(left_s))  # a signal ends it early


def exhaust_memory() -> None:
    """Be killed by the kernel for want of memory, in a cgroup of 64 MiB made for it: the machine does not run short.

    Raises:
        OSError: no such cgroup can be made here, or the kernel does not enforce it.
    """
    group = _small_cgroup()
    _remove_after_death(group)
    (group / _MEMBERS).write_text(str(os.getpid()))
    taken: list[bytearray] = []
    for _ in range(4 * _OOM_LIMIT_BYTES // _OOM_PIECE_BYTES):
        taken.append(bytearray(b"\1") * _OOM_PIECE_BYTES)  # written to, or it would not be taken
    raise OSError(f"the kernel let this process exceed the memory limit of {group}")


class Slowdown:
    """Makes a rank slow: after each phase it works on, for nothing, as long as its factor says."""

    def __init__(self, factor: float, until_step: int) -> None:
        self._factor, self._until_step = factor, until_step
        self._worked_s = time.thread_time()

    def apply(self, step: int) -> bool:
        """Delay the end of a phase; False once step `until_step` has come."""
        if step >= self._until_step:
            return False
        now_s = time.thread_time()
        until_s = now_s + (self._factor - 1) * (now_s - self._worked_s)
        while time.thread_time() < until_s:
            pass
        self._worked_s = time.thread_time()
        return True


def _no_core_file() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _small_cgroup() -> Path:
    """A new cgroup with little memory, of version 2 or 1; earlier ones that nobody is in are removed."""
    why: list[str] = []
    for parent, limit, no_swap in _memory_cgroups():
        for left in parent.glob(f"{_OOM_PREFIX}*"):
            with contextlib.suppress(OSError):
                left.rmdir()
        group = parent / f"{_OOM_PREFIX}{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(_OOM_LIMIT_BYTES))
            if (group / no_swap[0]).exists():
                (group / no_swap[0]).write_text(no_swap[1])
            return group
        except OSError as error:
            why.append(f"{group}: {error.strerror}")
            with contextlib.suppress(OSError):
                group.rmdir()
    raise OSError("; ".join(why) or f"there is no memory cgroup below {_CGROUPS}")


def _memory_cgroups() -> Iterator[tuple[Path, str, tuple[str, str]]]:
    """Where a cgroup may be made: its parent, the file of its limit, and what forbids it to swap."""
    v2 = ("memory.max", ("memory.swap.max", "0"))
    v1 = ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", str(_OOM_LIMIT_BYTES)))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _existing(_CGROUPS / "memory", path), *v1
        elif not controllers and (_CGROUPS / "cgroup.controllers").exists():
            yield _existing(_CGROUPS, path), *v2


def _existing(root: Path, path: str) -> Path:
    """The cgroup as it is seen here: in a container its own is the root."""
    return found if (found := root / path.lstrip("/")).is_dir() else root


def _remove_after_death(group: Path) -> None:
    """Leave a process that waits for the end of this one, and removes the cgroup."""
    watched = os.pidfd_open(os.getpid())
    if os.fork():
        os.close(watched)
        return
    try:
        os.dup2(watched, 0)
        os.closerange(1, 2**31 - 1)  # peers must see that the rank's sockets are closed
        end = select.poll()
        end.register(0, select.POLLIN)
        end.poll()
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.01)
    finally:
        os._exit(0)
