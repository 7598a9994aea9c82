"""A rank learns whether its saved state is lost for now, or damaged."""

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence

import pytest

from regroup.workers.agent.ranks.state_replies import answer
from regroup.workers.agent.slices.saved_state import StateLostError
from regroup.workers.agent.snapshots.buffer_pool import LentBuffers
from regroup.workers.contract.error_classes import CheckpointDamagedError
from regroup.workers.contract.messages import Message, decode
from regroup.workers.contract.state_messages import BuffersRequest, StateCatalogRequest, StateReply, StateRequest
from regroup.workers.rank import state_requests
from regroup.workers.rank.state_requests import StateRequests
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.state_error import StateError
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable


class FailingState:
    """A state that no rank gets."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def lend(self, request: BuffersRequest) -> LentBuffers:
        raise self._error

    async def catalog(self, request: StateCatalogRequest) -> bytes:
        raise self._error

    async def fill(self, request: StateRequest, table: bytes) -> None:
        raise self._error

    def release_source(self) -> None:
        raise self._error


class Agent:
    """The channel of a rank whose agent answers at once, from a state."""

    def __init__(self, state: FailingState, ends: tuple[socket.socket, socket.socket]) -> None:
        self._state, self._ends = state, ends

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
        assert isinstance(message, StateCatalogRequest | StateRequest)
        asyncio.run(answer(self._state, message, fds, self._ends[0]))
        return decode(self._ends[1].recv(1 << 16)), ()

    def send(self, message: Message) -> None:
        raise AssertionError(f"{message} was not expected")

    def poll(self) -> Message | None:
        return None


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    made = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (StorageError("__0_0.distcp is damaged"), CheckpointDamagedError),
        (StorageUnavailable("no route to storage"), state_requests.StateLostError),
        (StateLostError("rank 0 is lost"), state_requests.StateLostError),
        (StateError("the state has no 'x'"), StateError),
        (OSError("no memory"), StateError),
    ],
)
def test_a_rank_raises_what_its_agent_found(
    ends: tuple[socket.socket, socket.socket], error: Exception, raised: type[Exception]
) -> None:
    buffer = ShardBuffer(os.memfd_create("buffer"))
    requests = StateRequests(Agent(FailingState(error), ends), 0, 1, buffer)
    with pytest.raises(raised, match=str(error)):
        requests.catalog()
    buffer.close()


def test_a_rank_learns_which_nodes_did_not_deliver_its_state(ends: tuple[socket.socket, socket.socket]) -> None:
    buffer = ShardBuffer(os.memfd_create("buffer"))
    state = FailingState(StateLostError("rank 0 is lost", ("node-b",)))
    with pytest.raises(state_requests.StateLostError) as found:
        StateRequests(Agent(state, ends), 0, 1, buffer).catalog()
    assert tuple(found.value.failed_holders) == ("node-b",)
    buffer.close()


def test_a_request_that_claims_to_be_huge_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    """Check this because a rank can make a sparse file of any size, and its agent would need that memory."""
    fd = os.memfd_create("request")
    os.ftruncate(fd, 1 << 50)
    agent = Agent(FailingState(AssertionError("the request is not read")), ends)
    reply, _ = agent.request(StateRequest(0, 1, 0, 100), [fd])
    assert isinstance(reply, StateReply) and f"has {1 << 50} bytes; at most" in reply.error
    os.close(fd)
