"""Replies to the requests with which ranks get their buffers and their part of a saved state."""

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Protocol

from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.agent.snapshots.buffer_pool import LentBuffers
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.messages import encode
from regroup.workers.contract.state_messages import (
    Buffers,
    BuffersRequest,
    SourceReleaseRequest,
    StateCatalogRequest,
    StateReply,
    StateRequest,
)
from regroup.workers.state.state_error import StateError
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable

_MOST_REQUEST_BYTES = 64 << 20
"""Largest request of a rank, compressed. A sparse file may claim any size, and its reader needs as much memory."""
StateMessage = BuffersRequest | StateCatalogRequest | StateRequest | SourceReleaseRequest


class RankState(Protocol):
    """Buffers and saved state for the ranks of a node; `restore_session.RestoreSession` describes the errors."""

    async def lend(self, request: BuffersRequest) -> LentBuffers:
        """Return the buffers of a rank."""
        ...

    async def catalog(self, request: StateCatalogRequest) -> bytes:
        """Return what the saved state contains, as compressed JSON."""
        ...

    async def fill(self, request: StateRequest, table: bytes) -> None:
        """Fill a buffer of a rank with the parts of the state in `table`."""
        ...

    def release_source(self) -> None:
        """Release the state that other ranks wrote."""
        ...


async def answer(state: RankState, request: StateMessage, fds: Sequence[int], sock: socket.socket) -> None:
    """Answer a rank. It may die while it waits.

    Args:
        state: buffers and saved state.
        request: message of the rank.
        fds: descriptors that came with it, which stay open.
        sock: socket of the rank.
    """
    with contextlib.suppress(OSError):
        try:
            match request:
                case BuffersRequest():
                    lent, source = await state.lend(request)
                    socket.send_fds(sock, [encode(Buffers(len(lent), source))], lent)
                case StateCatalogRequest():
                    _send_file(sock, await state.catalog(request))
                case StateRequest():
                    await state.fill(request, _content_of(fds))
                    sock.send(encode(StateReply()))
                case SourceReleaseRequest():
                    state.release_source()
                    sock.send(encode(StateReply()))
        except TransferError:
            return  # the generation ends, because the call that formed it fails as well
        except StateLostError as error:
            sock.send(encode(StateReply(str(error), is_lost=True, failed_holders=error.failed_holders)))
        except StorageUnavailable as error:
            sock.send(encode(StateReply(str(error), is_lost=True)))
        except StorageError as error:
            sock.send(encode(StateReply(str(error), is_damaged=True)))
        except (StateError, ValueError, OSError) as error:
            sock.send(encode(StateReply(str(error))))


def _send_file(sock: socket.socket, content: bytes) -> None:
    fd = os.memfd_create("regroup-state-catalog", os.MFD_CLOEXEC)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(content)
        socket.send_fds(sock, [encode(StateReply())], [fd])
    finally:
        os.close(fd)


def _content_of(fds: Sequence[int]) -> bytes:
    if len(fds) != 1:
        raise ValueError(f"a request for parts of a state came with {len(fds)} files instead of one")
    if (nbytes := os.fstat(fds[0]).st_size) > _MOST_REQUEST_BYTES:
        raise ValueError(
            f"a request for parts of a state has {nbytes} bytes; at most {_MOST_REQUEST_BYTES} are allowed"
        )
    return os.pread(fds[0], nbytes, 0)
