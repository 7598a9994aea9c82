"""The sending side of a transfer: the chunks of one shard that its peer requests."""

import os
from collections.abc import Sequence

from regroup.workers.agent.transfer import chunk_format, region_copy
from regroup.workers.agent.transfer.chunk_format import MOST_CHUNK_BYTES, Kind
from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.agent.transfer.presence import prefault
from regroup.workers.agent.transfer.priorities import Pace
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.agent.transfer.transfer_faults import TransferFaults
from regroup.workers.os.memory_files import allocated_bytes
from regroup.workers.state.memory.checksum import checksum
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer, ShardHeader
from regroup.workers.state.slices.boxes import Region


class ServedShard:
    """The memory of a shard, open for reading. It takes over the descriptor.

    A rank may overwrite the shard at any time. It invalidates the header first. So bytes are those of the shard if the
    header has not changed after their checksum was computed.
    """

    def __init__(self, fd: int, key: ShardKey) -> None:
        """Open a shard.

        Raises:
            TransferError: the descriptor has no complete shard of this rank and set.
        """
        self._fd, self.file_bytes = fd, allocated_bytes(fd)
        self._buffer = ShardBuffer(os.dup(fd))
        self._header = self._buffer.header()
        found = ShardKey(self._header.rank, self._header.generation, self._header.step)
        if self._header.state is not BufferState.COMPLETE or found != key:
            self._buffer.close()
            os.close(fd)
            raise TransferError(f"expected the shard of {key}, found another shard: {found}")
        self._view = memoryview(self._buffer.memory.mapped())
        self._packed = bytearray()

    def close(self) -> None:
        """Release the memory."""
        self._view.release()
        self._buffer.close()
        os.close(self._fd)

    @property
    def is_present(self) -> bool:
        """True while no rank has begun to overwrite the shard."""
        return _identity(self._buffer.header()) == _identity(self._header)

    def send_chunk(
        self, connection: Connection, regions: Sequence[Region], faults: TransferFaults | None = None
    ) -> None:
        """Send the bytes of these regions with their checksum. The network reads them from a cache of the processor.

        Raises:
            ValueError: the regions are not within the shard, or have too many bytes.
        """
        nbytes = sum(region.size_bytes for region in regions)
        if nbytes > MOST_CHUNK_BYTES or any(region.end > self.file_bytes for region in regions):
            raise ValueError(f"a request for {nbytes} bytes is not within a shard of {self.file_bytes} bytes")
        is_damaged = faults is not None and faults.pop_damage()
        if len(regions) == 1 and not regions[0].counts and not is_damaged:
            with self._view[regions[0].offset : regions[0].end] as content:
                prefault(content)
                if self._send_head(connection, checksum(content), nbytes, faults):
                    connection.send(content)
            return
        if len(self._packed) < nbytes:
            self._packed = bytearray(nbytes)
        with memoryview(self._packed)[:nbytes] as packed:
            region_copy.gather(self._view, regions, packed)
            crc32 = checksum(packed)
            if is_damaged:
                packed[nbytes // 2] ^= 1
            if self._send_head(connection, crc32, nbytes, faults):
                connection.send(packed)

    def _send_head(self, connection: Connection, crc32: int, nbytes: int, faults: TransferFaults | None) -> bool:
        """Send the checksum of a chunk; return False if the shard is not present any more, so no chunk follows."""
        if not self.is_present:
            chunk_format.send_reply(connection, Kind.END)
            return False
        chunk_format.send_reply(connection, Kind.CHUNK, crc32, nbytes)
        if faults is not None:
            faults.end_process()
        return True


def _identity(header: ShardHeader) -> tuple[BufferState, int, int, int]:
    return header.state, header.generation, header.step, header.crc32


def serve_chunks(connection: Connection, source: ServedShard, pace: Pace, faults: TransferFaults | None = None) -> None:
    """Send the chunks that the peer requests until it ends the transfer.

    Raises:
        ValueError: the peer sent an invalid request.
        OSError: the connection ended.
    """
    while True:
        kind, regions = chunk_format.receive_request(connection)
        if kind is Kind.END:
            return
        if kind is Kind.CHUNK:
            nbytes = sum(region.size_bytes for region in regions)
            pace.before_chunk(connection, nbytes, lambda: chunk_format.send_reply(connection, Kind.PAUSE))
            source.send_chunk(connection, regions, faults)
