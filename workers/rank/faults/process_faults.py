"""Faults of a rank's process. They are real, so that detection and recovery are tested as in production."""

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
    """Abort, like a failed assertion in a C++ library."""
    _no_core_file()
    os.abort()


def loop() -> NoReturn:
    """Run a Python loop that never ends."""
    while True:
        pass


def sleep(duration_s: float | None) -> None:
    """Sleep without using the CPU, like a process that waits for a lock or a disk. None: until the process ends."""
    time.sleep(_FOR_EVER_S if duration_s is None else duration_s)


def block_gil(duration_s: float | None) -> None:
    """Wait inside C while holding the GIL, so that no other Python thread runs. None: until the process ends."""
    wait = ctypes.PyDLL(None).sleep  # unlike CDLL, PyDLL does not release the GIL
    until_s = time.monotonic() + (_FOR_EVER_S if duration_s is None else duration_s)
    while (left_s := until_s - time.monotonic()) > 0:
        if left_s < 1:
            ctypes.PyDLL(None).usleep(int(1e6 * left_s))
        else:
            wait(int(left_s))  # a signal ends it early


def exhaust_memory() -> None:
    """Allocate memory in a new cgroup of 64 MiB until the kernel kills this process. Other processes are not affected.

    Raises:
        OSError: the process cannot create such a cgroup here, or the kernel does not enforce its limit.
    """
    group = _small_cgroup()
    _remove_after_death(group)
    (group / _MEMBERS).write_text(str(os.getpid()))
    taken: list[bytearray] = []
    for _ in range(4 * _OOM_LIMIT_BYTES // _OOM_PIECE_BYTES):
        taken.append(bytearray(b"\1") * _OOM_PIECE_BYTES)  # writing to it makes the kernel allocate it
    raise OSError(f"the kernel let this process exceed the memory limit of {group}")


class Slowdown:
    """Slows a rank down: busy-waits after each phase in proportion to the work of the phase."""

    def __init__(self, factor: float, until_step: int) -> None:
        self._factor, self._until_step = factor, until_step
        self._worked_s = time.thread_time()

    def apply(self, step: int) -> bool:
        """Delay the end of a phase. Return False when step `until_step` is reached."""
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
    """Create a cgroup with little memory, of version 2 or 1. Remove empty cgroups of earlier faults."""
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
    """Yield candidates for the parent cgroup: its path, the file of its limit, and the setting that disables swap."""
    v2 = ("memory.max", ("memory.swap.max", "0"))
    v1 = ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", str(_OOM_LIMIT_BYTES)))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _existing(_CGROUPS / "memory", path), *v1
        elif not controllers and (_CGROUPS / "cgroup.controllers").exists():
            yield _existing(_CGROUPS, path), *v2


def _existing(root: Path, path: str) -> Path:
    """Return the path of the cgroup as visible here: in a container its own cgroup is the root."""
    return found if (found := root / path.lstrip("/")).is_dir() else root


def _remove_after_death(group: Path) -> None:
    """Fork a process that removes the cgroup when this process has ended."""
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
