"""Write files to durable storage from memory, in chunks that several threads write at the same time. Blocking.

Each chunk has a checksum. A folder gets a file under its name only when the file is complete and on the disk. Object
storage gets the chunks as parts of one upload.
"""

import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from regroup.workers.contract.checkpoint_manifest import CHUNK_BYTES
from regroup.workers.os.thread_priority import lower_priority
from regroup.workers.storage.file_targets import FileTarget, open_target

STREAMS = max(4, min(16, os.cpu_count() or 4))
"""Threads that write at the same time."""
_NICE = 10
"""Niceness of these threads: they must not delay training."""


@dataclass(frozen=True)
class Draft:
    """A file to write."""

    name: str
    size_bytes: int
    read: Callable[[int, memoryview], None]
    """Fills the memory with the bytes of the file from a position on. Several threads call it."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that is complete in storage."""

    name: str
    size_bytes: int
    crcs: tuple[int, ...]
    """CRC-32 of each chunk."""


class ParallelWrite:
    """Writes files below a URI. `run` may be called again after an error: files that are complete are not repeated."""

    def __init__(
        self, uri: str, drafts: Sequence[Draft], *, count: Callable[[int], None] = lambda _: None, device: str = ""
    ) -> None:
        """Initialize without a connection.

        Args:
            uri: Folder.
            drafts: Files to write.
            count: Receives the number of bytes of each chunk that was written, and the negative number of those of an
                abandoned file. Threads call it.
            device: Device that gets the last chunk of the largest file instead, for a planned fault.
        """
        self.written: dict[str, WrittenFile] = {}
        self._uri, self._drafts, self._count = uri, list(drafts), count
        self._device = device

    def run(self, calls: Iterable[Callable[[], None]] = ()) -> list[WrittenFile]:
        """Write the files that are not complete yet, and return all of them in the order of the drafts.

        Args:
            calls: Calls to make in the same threads, after the chunks.

        Raises:
            OSError, StorageError: Storage refused. Nothing remains of the incomplete files.
        """
        open_files = [self._open(draft) for draft in self._drafts if draft.name not in self.written]
        pool = ThreadPoolExecutor(STREAMS, "checkpoint-write", initializer=lower_priority, initargs=(_NICE,))
        stop = threading.Event()
        running: set[Future[None]] = set()
        try:
            for call in _calls(open_files, calls):
                running.add(pool.submit(_unless, stop, call))
                if len(running) >= 2 * STREAMS:
                    running = _first_done(running)
            while running:
                running = _first_done(running)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)  # waits: a thread must not write to a file that is closed
            for file in open_files:
                file.abort()
            raise
        pool.shutdown()
        return [self.written[draft.name] for draft in self._drafts]

    def _open(self, draft: Draft) -> "_OpenFile":
        device = ""
        if self._device and draft.size_bytes == max(each.size_bytes for each in self._drafts):
            device, self._device = self._device, ""
        return _OpenFile(draft, open_target(self._uri, draft.name, draft.size_bytes, device), self)

    def record(self, file: WrittenFile) -> None:
        """Record a complete file."""
        self.written[file.name] = file

    def count(self, nbytes: int) -> None:
        """Count written bytes; a negative number cancels them."""
        self._count(nbytes)


@dataclass
class _OpenFile:
    draft: Draft
    target: FileTarget
    owner: ParallelWrite
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _crcs: dict[int, int] = field(default_factory=dict[int, int])
    _done_bytes: int = 0
    _is_finished: bool = False

    @property
    def chunks(self) -> int:
        return max(1, -(-self.draft.size_bytes // CHUNK_BYTES))

    def calls(self) -> Iterator[Callable[[], None]]:
        """Yield calls that may run at the same time. The last one to end completes the file."""
        if self.target.is_in_order:
            yield self._write_all
            return
        for number in range(self.chunks):
            yield lambda number=number: self._write(number)

    def abort(self) -> None:
        """Remove what was written, unless the file is complete."""
        with self._lock:
            if not self._is_finished:
                self._is_finished = True
                self.owner.count(-self._done_bytes)
                self.target.abort()

    def _write_all(self) -> None:
        for number in range(self.chunks):
            self._write(number)

    def _write(self, number: int) -> None:
        start = number * CHUNK_BYTES
        view = _scratch()[: min(CHUNK_BYTES, self.draft.size_bytes - start)]
        self.draft.read(start, view)
        crc = zlib.crc32(view)
        self.target.write(start, view)
        self.owner.count(len(view))
        with self._lock:
            self._crcs[number] = crc
            self._done_bytes += len(view)
            if self._is_finished or len(self._crcs) < self.chunks:
                return
            self.target.finish()
            self._is_finished = True
        crcs = tuple(self._crcs[each] for each in range(self.chunks))
        self.owner.record(WrittenFile(self.draft.name, self.draft.size_bytes, crcs))


_MEMORY = threading.local()


def _scratch() -> memoryview:
    """Return memory of this thread for one chunk."""
    if not hasattr(_MEMORY, "chunk"):
        _MEMORY.chunk = memoryview(bytearray(CHUNK_BYTES))
    return _MEMORY.chunk


def _calls(files: Sequence[_OpenFile], calls: Iterable[Callable[[], None]]) -> Iterator[Callable[[], None]]:
    for file in files:
        yield from file.calls()
    yield from calls


def _unless(stop: threading.Event, call: Callable[[], None]) -> None:
    if not stop.is_set():
        call()


def _first_done(running: set[Future[None]]) -> set[Future[None]]:
    done, rest = wait(running, return_when=FIRST_COMPLETED)
    for each in done:
        each.result()
    return rest
