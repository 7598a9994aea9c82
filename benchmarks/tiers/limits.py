"""Limits of the machine: rates of a copy in memory, of `dd` with fsync, and of reading files."""

import ctypes
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.trials import stats

_READ_BYTES = 16 << 20
_DROP_INTERVAL_S = 0.2


class Memory:
    """Touched memory."""

    def __init__(self, size_bytes: int) -> None:
        self.memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        ctypes.memset(self.address, 1, size_bytes)


def memcpy_rate(size_bytes: int, trials: int) -> float:
    """Return the bytes per second of one thread that copies between touched memory."""
    source, target = Memory(size_bytes), Memory(size_bytes)
    return rate(size_bytes, trials, lambda: ctypes.memmove(target.address, source.address, size_bytes))


def dd_rate(folder: Path, size_bytes: int, trials: int) -> float:
    """Return the bytes per second of `dd` with fsync from memory to a new file in `folder`."""
    source, target = folder / "dd-source", folder / "dd-target"
    source.write_bytes(os.urandom(1 << 20) * (size_bytes >> 20))

    def write() -> None:
        target.unlink(missing_ok=True)
        command = ["dd", f"if={source}", f"of={target}", "bs=16M", "conv=fsync"]
        subprocess.run(command, check=True, capture_output=True)

    try:
        return rate(source.stat().st_size, trials, write)
    finally:
        source.unlink()
        target.unlink(missing_ok=True)


def drop_cached(files: Iterable[Path]) -> None:
    """Let the kernel forget the content of files that the disk has, so that the next read comes from there."""
    for path in files:
        with suppress(FileNotFoundError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def written_uncached(folder: Path, pattern: str) -> Generator[None]:
    """Drop the cached content of each new file below a folder soon after it has its name, until the context ends."""
    ended, dropped = threading.Event(), set[Path]()

    def drop() -> None:
        while not ended.wait(_DROP_INTERVAL_S):
            new = set(folder.rglob(pattern)) - dropped
            drop_cached(new)
            dropped.update(new)

    thread = threading.Thread(target=drop, name="drop-cached")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def read_rate(files: Sequence[Path], trials: int) -> float:
    """Return the bytes per second of one thread that reads these files from the disk to touched memory."""
    memory = memoryview(Memory(_READ_BYTES).memory)

    def read() -> None:
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(memory):
                    pass

    return rate(sum(path.stat().st_size for path in files), trials, read, lambda: drop_cached(files))


def rate(
    size_bytes: int, trials: int, work: Callable[[], object], prepare: Callable[[], object] = lambda: None
) -> float:
    """Return the median rate of some calls after a first one, each after a call of `prepare`."""
    times: list[float] = []
    for _ in range(trials + 1):
        prepare()
        begun_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun_s)
    return size_bytes / stats.median(times[1:])
