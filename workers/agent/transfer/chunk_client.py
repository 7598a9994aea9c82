"""The receiving side of a transfer: requests chunks, verifies them, and copies them to their place.

Several chunks are requested ahead, so the next one moves while one is verified. Several connections share one queue.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regroup.workers.agent.transfer import chunk_format, region_copy
from regroup.workers.agent.transfer.chunk_format import CHUNK_BYTES, MOST_CHUNK_BYTES, MOST_REGIONS, Kind
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.state.checksum import checksum
from regroup.workers.state.slices.boxes import Region

_AHEAD = 4
"""Chunks that are requested ahead on each connection."""


@dataclass(frozen=True)
class Read:
    """Bytes to fetch: a region of a shard, and the region of a writable memory for them."""

    source: Region
    memory: memoryview
    target: Region


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
                while len(requested) < _AHEAD and self.waiting:
                    if (chunk := self._pop()) is not None:
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
                if not _receive(connection, chunk, packed):
                    self.failed.append(chunk)
                requested.popleft()
        finally:
            self.failed.extend(requested)

    def _pop(self) -> Chunk | None:
        try:
            return self.waiting.popleft()
        except IndexError:  # another connection took the last one
            return None


def chunks_of(reads: Iterable[Read]) -> Iterator[Chunk]:
    """Combine small reads to chunks, and split large ones that are single runs on both sides."""
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
            yield Read(Region(source.offset + at, count), read.memory, Region(target.offset + at, count))


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
            connection.receive_into(place)
            return checksum(place) == reply.crc32
    with memoryview(packed)[: reply.nbytes] as place:
        connection.receive_into(place)
        if checksum(place) != reply.crc32:
            return False
        at = 0
        for read in chunk.reads:
            region_copy.copy(place, Region(at, read.source.size_bytes), read.memory, read.target)
            at += read.source.size_bytes
        return True
