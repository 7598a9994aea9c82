"""A rank asks for its part of a saved state: descriptors travel both ways, and none stays open."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import pytest

from regroup.workers.contract.error_classes import CheckpointDamagedError
from regroup.workers.contract.messages import Message
from regroup.workers.contract.state_messages import Buffers, StateCatalogRequest, StateReply, StateRequest
from regroup.workers.rank.state_requests import StateLostError, StateRequests
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, TensorBox, packed, unpacked
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.state_error import StateError

CATALOG = {"tensors": {"w": ["uint8", [9]]}, "facts": {"rank": 0}, "world_size": 2, "layout_hash": "h"}
TABLE = BoxTable.of([("w", TensorBox("uint8", 1, (9,), Box((0,), (5,))), 2)])


class Agent:
    """The channel to an agent that has a catalog, and writes the parts into the buffer that it shares with the rank."""

    def __init__(self, buffer: int, reply: Message | None = None) -> None:
        self._buffer, self._reply = buffer, reply
        self.requests: list[Message] = []
        self.table: BoxTable | None = None

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
        self.requests.append(message)
        if isinstance(message, StateRequest):
            (table,) = fds
            assert "/memfd:regroup-state-request" in open_files()
            self.table = BoxTable.from_json(unpacked(os.pread(table, os.fstat(table).st_size, 0)))
            os.posix_fallocate(self._buffer, 0, message.size_bytes)
            os.pwrite(self._buffer, b"--parts", 0)
        if self._reply is not None:
            return self._reply, ()
        if isinstance(message, StateRequest):
            return StateReply(), ()
        catalog = os.memfd_create("catalog")
        os.write(catalog, packed(CATALOG))
        return StateReply(), [catalog]

    def send(self, message: Message) -> None:
        raise AssertionError(f"{message} was not expected")

    def poll(self) -> Message | None:
        return None


@pytest.fixture
def shared() -> Iterator[int]:
    """The memory file of the rank's first buffer, as its agent has it."""
    fd = os.memfd_create("buffer")
    yield fd
    os.close(fd)


@pytest.fixture
def buffer(shared: int) -> Iterator[ShardBuffer]:
    made = ShardBuffer(os.dup(shared))
    yield made
    made.close()


@pytest.fixture
def is_tidy(buffer: ShardBuffer) -> Iterator[None]:
    """Check that no file that travelled is open after a test."""
    yield
    assert not {"/memfd:catalog", "/memfd:regroup-state-request"} & open_files()


def open_files() -> set[str]:
    """Return the names of the files that this process has open."""
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder itself
            found.add(os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)"))
    return found


@pytest.mark.usefixtures("is_tidy")
def test_the_catalog_comes_in_a_file(shared: int, buffer: ShardBuffer) -> None:
    agent = Agent(shared)
    assert StateRequests(agent, 3, 2, buffer).catalog() == CATALOG
    assert agent.requests == [StateCatalogRequest(3, 2)]


@pytest.mark.usefixtures("is_tidy")
def test_the_parts_are_in_the_first_buffer(shared: int, buffer: ShardBuffer) -> None:
    agent = Agent(shared)
    memory = StateRequests(agent, 3, 2, buffer).receive(TABLE, 7)
    assert memory == b"--parts" and len(memory) == 7
    assert (agent.requests, agent.table) == ([StateRequest(3, 2, 0, 7)], TABLE)
    os.pwrite(shared, b"XX", 0)
    assert bytes(memory[:2]) == b"XX", "it is the memory of the buffer, not a copy"
    memory.release()


@pytest.mark.usefixtures("is_tidy")
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (StateReply("rank 0 is lost", is_lost=True, failed_holders=("node-a",)), StateLostError),
        (StateReply("__0_0.distcp is damaged", is_damaged=True), CheckpointDamagedError),
        (StateReply("the state has no 'x'"), StateError),
    ],
)
def test_a_refusal_is_raised_as_its_kind_of_error(
    shared: int, buffer: ShardBuffer, reply: StateReply, error: type[Exception]
) -> None:
    requests = StateRequests(Agent(shared, reply), 3, 2, buffer)
    for request in (requests.catalog, lambda: requests.receive(TABLE, 7)):
        with pytest.raises(error, match=reply.error) as raised:
            request()
        assert getattr(raised.value, "failed_holders", ()) == reply.failed_holders


@pytest.mark.usefixtures("is_tidy")
def test_another_kind_of_reply_is_a_fault_of_this_program(shared: int, buffer: ShardBuffer) -> None:
    with pytest.raises(AssertionError, match="Buffers"):
        StateRequests(Agent(shared, Buffers(1, -1)), 3, 2, buffer).receive(TABLE, 7)


@pytest.mark.usefixtures("is_tidy")
def test_a_channel_that_breaks_leaves_no_file_open(shared: int, buffer: ShardBuffer) -> None:
    class Broken(Agent):
        def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
            raise ConnectionError("the agent is dead")

    with pytest.raises(ConnectionError, match="dead"):
        StateRequests(Broken(shared), 3, 2, buffer).receive(TABLE, 7)
