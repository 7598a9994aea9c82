"""The requests of a rank for its part of a saved state that is not in one of its own buffers."""

import os
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract.error_classes import CheckpointDamagedError
from regroup.workers.contract.state_messages import StateCatalogRequest, StateReply, StateRequest
from regroup.workers.rank.ports import ChannelPort
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, packed, unpacked
from regroup.workers.state.state_error import StateError

_BUFFER = 0
"""Buffer that receives the parts. Its memory is in use then, so the first snapshot does not have to allocate it."""


class StateLostError(ConnectionError):
    """The saved state was there and can no longer be read. Another attempt may find another source."""

    def __init__(self, message: str, failed_holders: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failed_holders = failed_holders
        """Nodes that had it and did not deliver it."""


class StateRequests:
    """Asks the agent for the catalog of the state and for parts of it."""

    def __init__(self, channel: ChannelPort, rank: int, generation: int, buffer: ShardBuffer) -> None:
        """Initialize the requests.

        Args:
            channel: connection to the agent.
            rank: this rank.
            generation: generation of this rank.
            buffer: this rank's first buffer, which receives the parts.
        """
        self._channel, self._rank, self._generation, self._buffer = channel, rank, generation, buffer

    def catalog(self) -> Mapping[str, Any]:
        """Return names and shapes of the tensors, the small facts, and the layout of the ranks that wrote the state.

        Raises:
            StateLostError: the state can no longer be read.
            CheckpointDamagedError: the state is a checkpoint that is not complete, or damaged.
        """
        reply, fds = self._channel.request(StateCatalogRequest(self._rank, self._generation))
        _check(reply)
        try:
            return unpacked(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
        finally:
            os.close(fds[0])

    def receive(self, table: BoxTable, size_bytes: int) -> memoryview:
        """Return a memory of `size_bytes` that holds the boxes of the table at their positions.

        Raises:
            StateError: the state does not have them.
            StateLostError: the state can no longer be read.
            CheckpointDamagedError: a part of the checkpoint is damaged.
        """
        request = StateRequest(self._rank, self._generation, _BUFFER, size_bytes)
        fd = os.memfd_create("regroup-state-request", os.MFD_CLOEXEC)  # the boxes of many tensors do not fit a packet
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                file.write(packed(table.to_json()))
            reply, _ = self._channel.request(request, [fd])
        finally:
            os.close(fd)
        _check(reply)
        return memoryview(self._buffer.memory.mapped())[:size_bytes]


def _check(reply: object) -> None:
    assert isinstance(reply, StateReply), f"the reply to a request for state is StateReply, not {reply!r}"
    if reply.is_damaged:
        raise CheckpointDamagedError(reply.error)
    if reply.is_lost:
        raise StateLostError(reply.error, reply.failed_holders)
    if reply.error:
        raise StateError(reply.error)
