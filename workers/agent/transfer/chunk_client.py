"""The receiving side of a transfer: requests chunks, verifies them, and copies them to their place.

Several chunks are requested ahead, so the next one moves while one is verified. Several connections share one queue.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regroup.workers.agent.transfer import chunk_format, region_copy
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES, MOST_CHUNK_BYTES, MOST_REGIONS, Kind
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.presence import prefault
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.state.memory.checksum import BLOCK_BYTES, Fold
from regroup.workers.state.slices.boxes import Region

_AHEAD = 4
"""Chunks that are requested ahead on each connection."""


class PartSum:
    """Checksum of consecutive bytes that arrive in chunks, in any order. Each chunk begins at a row of the checksum."""

    def __init__(self) -> None:
        """Start with no byte."""
        self._fold, self._lock = Fold(), threading.Lock()

    def add(self, fold: Fold) -> None:
        """Add the fold of one chunk."""
        with self._lock:
            self._fold.merge(fold)

    def checksum(self) -> int:
        """Return the checksum of all chunks."""
        return self._fold.checksum()


@dataclass(frozen=True)
class Read:
    """Bytes to fetch: a region of a shard, and the region of a writable memory for them."""

    source: Region
    memory: memoryview
    target: Region
    part: PartSum | None = None
    """Sum to which the bytes are added, for a single run."""


@dataclass(frozen=True)
class Chunk:
    """Reads that one request fetches."""

    reads: Sequence[Read]

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return sum(read.source.size_bytes for read in self.reads)


@dataclass
class Pull:
    """Chunks of one transfer: those to request, and those that arrived damaged or did not arrive."""

    waiting: deque[Chunk]
    failed: list[Chunk] = field(default_factory=list[Chunk])
    arrived: deque[int] = field(default_factory=deque[int])
    """Bytes of each chunk that arrived, also of damaged ones."""

    def run(self, connection: Connection, pace: Pace) -> None:
        """Fetch chunks on one connection until none is waiting. Other threads may do the same with other connections.

        Raises:
            TransferError: the peer does not have the shard any more.
            ValueError: the peer sent an invalid reply.
            OSError: the connection ended.
        """
        requested, packed = deque[Chunk](), bytearray()
        try:
            while True:
                while len(requested) < _AHEAD and (chunk := self._pop()) is not None:
                    requested.append(chunk)
                    pace.before_chunk(
                        connection, chunk.nbytes, lambda: chunk_format.send_request_kind(connection, Kind.PAUSE)
                    )
                    chunk_format.send_request(connection, [read.source for read in chunk.reads])
                if not requested:
                    return
                chunk = requested[0]
                if len(packed) < chunk.nbytes and not _is_direct(chunk):
                    packed = bytearray(chunk.nbytes)
                is_intact = _receive(connection, chunk, packed)
                self.arrived.append(chunk.nbytes)
                if not is_intact:
                    self.failed.append(chunk)
                requested.popleft()
        finally:
            self.failed.extend(requested)

    def _pop(self) -> Chunk | None:
        try:
            return self.waiting.popleft()
        except IndexError:  # none is left, or another connection took the last one
            return None


def chunks_of(reads: Iterable[Read]) -> Iterator[Chunk]:
    """Combine small reads to chunks, and split large ones that are single runs on both sides.

    Raises:
        ValueError: a read has regions of different sizes, or a region that is too large for a chunk.
    """
    combined, nbytes = list[Read](), 0
    for read in _split(reads):
        if combined and (nbytes + read.source.size_bytes > CHUNK_BYTES or len(combined) == MOST_REGIONS):
            yield Chunk(tuple(combined))
            combined, nbytes = [], 0
        if read.source.size_bytes:
            combined.append(read)
            nbytes += read.source.size_bytes
    if combined:
        yield Chunk(tuple(combined))


def _split(reads: Iterable[Read]) -> Iterator[Read]:
    for read in reads:
        source, target = read.source, read.target
        if source.size_bytes != target.size_bytes:
            raise ValueError(f"cannot read {source.size_bytes} bytes to a region of {target.size_bytes} bytes")
        if source.size_bytes <= CHUNK_BYTES or source.counts or target.counts:
            if source.size_bytes > MOST_CHUNK_BYTES:
                raise ValueError(f"a region of {source.size_bytes} bytes exceeds a chunk of {MOST_CHUNK_BYTES} bytes")
            yield read
            continue
        for at in range(0, source.size_bytes, CHUNK_BYTES):
            count = min(CHUNK_BYTES, source.size_bytes - at)
            part = Region(source.offset + at, count), read.memory, Region(target.offset + at, count)
            yield Read(*part, read.part)


def _is_direct(chunk: Chunk) -> bool:
    """Return True if the bytes arrive where they belong."""
    return len(chunk.reads) == 1 and not chunk.reads[0].target.counts


def _receive(connection: Connection, chunk: Chunk, packed: bytearray) -> bool:
    """Receive one chunk. Return False if it is damaged; then its targets have any content."""
    while (reply := chunk_format.receive_reply(connection)).kind is Kind.PAUSE:
        pass
    if reply.kind is Kind.END:
        raise TransferError("a rank overwrote the shard during the transfer")
    if reply.nbytes != chunk.nbytes:
        raise ValueError(f"requested {chunk.nbytes} bytes, got {reply.nbytes}")
    if _is_direct(chunk):
        (read,) = chunk.reads
        with read.memory[read.target.offset : read.target.end] as place:
            prefault(place, is_written=True)
            fold = _receive_and_sum(connection, place)
        if fold.checksum() != reply.crc32:
            return False
        if read.part is not None:
            read.part.add(fold)
        return True
    with memoryview(packed)[: reply.nbytes] as place:
        if _receive_and_sum(connection, place).checksum() != reply.crc32:
            return False
        at = 0
        for read in chunk.reads:
            nbytes = read.source.size_bytes
            region_copy.copy(place, Region(at, nbytes), read.memory, read.target)
            if read.part is not None:
                with place[at : at + nbytes] as some:
                    _add_to(read.part, some)
            at += nbytes
        return True


def _receive_and_sum(connection: Connection, place: memoryview) -> Fold:
    """Fill `place`, and sum each block while it is in the cache. The kernel receives the next one at the same time."""
    fold = Fold()
    for at in range(0, len(place), BLOCK_BYTES):
        with place[at : at + BLOCK_BYTES] as block:
            connection.receive_into(block)
            fold.add(block)
    return fold


def _add_to(part: PartSum, content: memoryview) -> None:
    fold = Fold()
    fold.add(content)
    part.add(fold)
