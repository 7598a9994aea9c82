"""A rank group retains messages for a restarted supervisor, and sends buffers to ranks."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.ranks.rank_group import LocalRank, RankGroup
from regroup.workers.agent.ranks.rank_lease import RankLease
from regroup.workers.agent.snapshots.buffer_pool import LentBuffers
from regroup.workers.agent.transfer.shard_store import TransferError
from regroup.workers.contract.messages import Buffers, BuffersRequest, Done, Joined, StepRow, decode, encode, to_json
from regroup.workers.contract.progress_page import ProgressPage, new_page
from regroup.workers.environment.redaction import Redactor


def row(step: int) -> StepRow:
    return StepRow(1, step, 3.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0, extra={"all_reduce": 1.0})


@pytest.mark.parametrize(("steps", "retained"), [([], []), ([1], [1]), ([1, 2, 3], [1, 3])])
async def test_the_first_and_the_newest_step_are_replayed(steps: list[int], retained: list[int]) -> None:
    received: list[Any] = []
    zygote, local, unused = (object(),) * 3
    group = RankGroup(1, zygote, RankLease(600, 30), received.append, unused, unused, Redactor().hide_message)  # type: ignore[arg-type]  # no rank is forked
    group._handle(local, Joined(0, 1, 2.0))  # type: ignore[arg-type]
    for step in steps:
        group._handle(local, row(step))  # type: ignore[arg-type]
    assert [to_json(message) for message in group.messages_for_replay()] == [
        to_json(message) for message in (Joined(0, 1, 2.0), *map(row, retained))
    ]
    assert len(received) == 1 + len(steps)


@pytest.fixture
def rank() -> Iterator[tuple[LocalRank, socket.socket]]:
    """A rank from its agent's side, and the rank's end of the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    collectives, responder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for sock in (ours, theirs, collectives):
        sock.setblocking(False)
    page = new_page()
    yield LocalRank(0, 1, ours, collectives, ProgressPage(page), Path("log"), is_script=False), theirs
    os.close(page)
    for sock in (ours, theirs, collectives, responder):
        sock.close()


async def test_messages_of_a_rank_have_no_secrets(rank: tuple[LocalRank, socket.socket]) -> None:
    local, theirs = rank
    received: list[Any] = []
    unused, redactor = object(), Redactor(["hunter2-4f1d"])
    group = RankGroup(1, unused, RankLease(600, 30), received.append, unused, unused, redactor.hide_message)  # type: ignore[arg-type]
    group.ranks[0] = local
    theirs.send(encode(Done(0, 1, 4, stopped=False, result={"url": "x?key=hunter2-4f1d"})))
    group._read(local)
    assert received == group.messages == [Done(0, 1, 4, stopped=False, result={"url": "x?key=***"})]


class PendingNode:
    """A node that waits for shards of other nodes."""

    def __init__(self) -> None:
        self.fetched = asyncio.get_running_loop().create_future()
        self.lent: list[BuffersRequest] = []

    async def lend(self, request: BuffersRequest) -> LentBuffers:
        await asyncio.shield(self.fetched)
        self.lent.append(request)
        return (), -1


@pytest.mark.parametrize("end", ["arrived", "lost", "closed"])
async def test_a_rank_gets_its_buffers_once_the_shards_have_arrived(
    rank: tuple[LocalRank, socket.socket], end: str
) -> None:
    local, theirs = rank
    node, request, unused = PendingNode(), BuffersRequest(0, 1, 64), object()
    group = RankGroup(1, unused, RankLease(600, 30), unused, node, unused, Redactor().hide_message)  # type: ignore[arg-type]  # no rank is forked
    group.ranks[0] = local
    group._handle(local, request)
    await asyncio.sleep(0.01)
    with pytest.raises(BlockingIOError):
        theirs.recv(4096)
    if end == "arrived":
        node.fetched.set_result(None)
        await asyncio.sleep(0.01)
        assert decode(theirs.recv(4096)) == Buffers(0, -1) and node.lent == [request]
    elif end == "lost":
        node.fetched.set_exception(TransferError("no shard of rank 3"))
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            theirs.recv(4096)
    else:
        group.close()
        node.fetched.set_result(None)
        await asyncio.sleep(0.01)
        assert node.lent == [], "the buffers belong to the next generation"
