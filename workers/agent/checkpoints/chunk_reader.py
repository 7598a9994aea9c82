"""Parts of the files of a checkpoint, read in whole chunks so that each byte is verified before a rank gets it."""

import asyncio
import contextlib
import threading
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from regroup.workers.agent.checkpoints.read_ahead import ReadAhead
from regroup.workers.agent.checkpoints.read_order import ReadOrder, Turn
from regroup.workers.agent.slices.saved_state import SliceRead, StateLostError
from regroup.workers.agent.transfer.presence import prefault
from regroup.workers.agent.transfer.region_copy import copy as copy_region
from regroup.workers.contract.checkpoint_manifest import CHUNK_BYTES, FileChunks
from regroup.workers.state.slices.boxes import Region
from regroup.workers.state.slices.held_state import Holder
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from regroup.workers.storage.parallel_write import STREAMS
from regroup.workers.storage.ranged_read import RangeReader

_KEPT_CHUNKS = 2 * STREAMS
"""Chunks in memory of which only a part was needed so far."""
_WHOLE = 0.98
"""Share of a chunk from which on it goes directly to its target. The rest is containers."""
_MOST_SPAN_BYTES = 2 * CHUNK_BYTES
"""Most bytes of a file that one thread stages at once, to copy a region with gaps out of them."""
_ATTEMPTS = 3
_Turn = contextlib.AbstractContextManager[None]
_NO_TURN: _Turn = contextlib.nullcontext()
_Key = tuple[str, int]


@dataclass(frozen=True)
class _Run:
    """Consecutive bytes of a file, and the memory that they fill."""

    start: int
    memory: memoryview


class ChunkReader:
    """Reads and verifies parts of the files of one checkpoint (`SliceReader`)."""

    def __init__(
        self, uri: str, files: Mapping[str, FileChunks], count: Callable[[int], None] = lambda _: None
    ) -> None:
        self._uri, self._files, self._count = uri, files, count
        self._received = deque[int]()
        """Bytes of each read of storage."""
        self._storage = RangeReader(uri)
        self._pool = ThreadPoolExecutor(STREAMS, "checkpoint-read")
        self._kept = OrderedDict[_Key, Future[memoryview]]()
        self._lock = threading.Lock()
        self.ahead: ReadAhead | None = None

    def read_ahead(self, parts: Sequence[tuple[str, int, int]]) -> None:
        """Start to read parts of local files into the cache of the host, until `close`. See `ReadAhead`."""
        if self._storage.is_local:
            self.ahead = ReadAhead(self._uri, parts)

    async def read(self, holder: Holder, reads: Sequence[SliceRead]) -> None:
        """Read parts of a file and verify them.

        Raises:
            StorageError: A part is missing, or remained damaged when it was read again.
            StateLostError: Storage did not answer.
        """
        name, loop, order = str(holder), asyncio.get_running_loop(), ReadOrder()
        runs = [run for each in reads if (run := _run_of(each)) is not None]
        staged = [each for each in reads if _run_of(each) is None]
        running = [
            *(
                loop.run_in_executor(self._pool, self._read_chunk, name, *part, order.turn(number))
                for number, part in enumerate(_by_chunk(runs))
            ),
            *(loop.run_in_executor(self._pool, self._read_staged, name, each) for each in staged),
        ]
        for result in await asyncio.gather(*running, return_exceptions=True):  # until no thread uses the memory
            if isinstance(result, Exception):
                await asyncio.to_thread(self._refuse, result)
            if result is not None:
                raise result

    def total_bytes(self, reads: Mapping[Holder, Sequence[SliceRead]]) -> int:
        """Return the size of the chunks that these reads need."""
        total = 0
        for holder, parts in reads.items():
            name, chunks = str(holder), set[int]()
            for each in parts:
                chunks.update(range(each.source.offset // CHUNK_BYTES, -(-each.source.end // CHUNK_BYTES)))
            total += sum(self._size_of(name, number) for number in chunks)
        return total

    @property
    def received_bytes(self) -> int:
        """Bytes that were read from storage so far."""
        return sum(self._received)

    def close(self) -> None:
        """End the threads and close the files."""
        if self.ahead is not None:
            self.ahead.close()
        self._pool.shutdown(cancel_futures=True)
        self._storage.close()

    def _refuse(self, error: Exception) -> None:
        """Raise an error of a read, as storage that lacks content or as storage that does not answer."""
        try:
            with fsspec_storage.answering(self._uri):
                raise error
        except StorageUnavailable as unavailable:
            raise StateLostError(str(unavailable)) from error

    def _read_chunk(self, name: str, number: int, runs: Sequence[_Run], turn: Turn) -> None:
        try:
            self._read_runs(name, number, runs, turn if self._storage.is_local else _NO_TURN)
        finally:
            turn.leave()

    def _read_runs(self, name: str, number: int, runs: Sequence[_Run], turn: _Turn) -> None:
        first, size = number * CHUNK_BYTES, self._size_of(name, number)
        needed = sum(len(run.memory) for run in runs)
        if needed < _WHOLE * size or needed > size:  # more: runs overlap
            chunk = self._kept_chunk(name, number, turn)
            for run in runs:
                run.memory[:] = chunk[run.start - first : run.start - first + len(run.memory)]
            return
        views: list[memoryview] = []
        at = first
        for run in runs:
            if run.start > at:
                views.append(memoryview(bytearray(run.start - at)))
            prefault(run.memory, is_written=True)
            views.append(run.memory)
            at = run.start + len(run.memory)
        if at < first + size:
            views.append(memoryview(bytearray(first + size - at)))
        self._read_verified(name, number, views, turn)

    def _read_staged(self, name: str, read: SliceRead) -> None:
        """Read a region with gaps, part by part: the tensor between its first and its last byte may be large."""
        packed, done = memoryview(bytearray(read.source.size_bytes)), 0
        for part in read.source.split(_MOST_SPAN_BYTES):
            place = packed[done : done + part.size_bytes]
            if not part.counts:
                self._read_span(name, part.offset, place)
            else:
                span = memoryview(bytearray(part.end - part.offset))
                self._read_span(name, part.offset, span)
                copy_region(span, part.shifted(-part.offset), place, Region(0, part.size_bytes))
            done += part.size_bytes
        copy_region(packed, Region(0, len(packed)), read.memory, read.target)

    def _read_span(self, name: str, begin: int, span: memoryview) -> None:
        """Fill `span` with consecutive bytes of a file."""
        end = begin + len(span)
        for number in range(begin // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
            first = number * CHUNK_BYTES
            chunk = self._kept_chunk(name, number)
            start, stop = max(begin, first), min(end, first + len(chunk))
            span[start - begin : stop - begin] = chunk[start - first : stop - first]

    def _kept_chunk(self, name: str, number: int, turn: _Turn = _NO_TURN) -> memoryview:
        """Return a chunk. Reads that need other parts of it at about the same time share it."""
        key = name, number
        with self._lock:
            found = self._kept.get(key)
            if is_new := found is None:
                found = self._kept[key] = Future()
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT_CHUNKS:
                self._kept.popitem(last=False)
        if is_new:
            chunk = memoryview(bytearray(self._size_of(name, number)))
            try:
                self._read_verified(name, number, [chunk], turn)
                found.set_result(chunk)
            except BaseException as error:
                found.set_exception(error)
                with self._lock:
                    self._kept.pop(key, None)
        return found.result()

    def _read_verified(self, name: str, number: int, views: Sequence[memoryview], turn: _Turn) -> None:
        """Read a whole chunk into views, in its turn.

        Raises:
            StorageError: Its checksum is wrong each time.
        """
        crc = expected = self._files[name].crcs[number]
        for _ in range(_ATTEMPTS):
            with turn:
                self._storage.read_into(name, number * CHUNK_BYTES, views)
            self._received.append(sum(len(view) for view in views))
            crc = 0
            for view in views:
                crc = zlib.crc32(view, crc)
            if crc == expected:
                self._count(sum(len(view) for view in views))
                return
        raise StorageError(
            f"{self._uri}/{name} is damaged: bytes from {number * CHUNK_BYTES} on have the CRC-32 {crc:08x} instead of "
            f"{expected:08x}, {_ATTEMPTS} times"
        )

    def _size_of(self, name: str, number: int) -> int:
        return min(CHUNK_BYTES, self._files[name].size_bytes - number * CHUNK_BYTES)


def _run_of(read: SliceRead) -> _Run | None:
    """Return a read as a run; None if its bytes have gaps in the file or in memory."""
    if read.source.counts or read.target.counts:
        return None
    start, nbytes = read.target.offset, read.source.run_bytes
    return _Run(read.source.offset, read.memory[start : start + nbytes])


def _by_chunk(runs: Sequence[_Run]) -> Iterator[tuple[int, list[_Run]]]:
    """Yield the number of each chunk with the parts of the runs in it, in the order of the file."""
    found: dict[int, list[_Run]] = {}
    for run in sorted(runs, key=lambda each: each.start):
        at = run.start
        while at < run.start + len(run.memory):
            number = at // CHUNK_BYTES
            stop = min(run.start + len(run.memory), (number + 1) * CHUNK_BYTES)
            found.setdefault(number, []).append(_Run(at, run.memory[at - run.start : stop - run.start]))
            at = stop
    yield from found.items()
