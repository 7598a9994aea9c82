"""What a formation keeps of what its ranks said, for a supervisor that was not there."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.ranks.rank_group import LocalRank, RankGroup
from regroup.workers.agent.snapshots.buffer_pool import Lent
from regroup.workers.agent.snapshots.shard_transfer import TransferError
from regroup.workers.contract.messages import Buffers, BuffersRequest, Joined, StepRow, decode, to_json
from regroup.workers.contract.progress_page import ProgressPage, new_page


def row(step: int) -> StepRow:
    return StepRow(1, step, 3.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0, extra={"all_reduce": 1.0})


@pytest.mark.parametrize(("steps", "kept"), [([], []), ([1], [1]), ([1, 2, 3], [1, 3])])
async def test_of_the_steps_the_first_and_the_newest_are_told_again(steps: list[int], kept: list[int]) -> None:
    told: list[Any] = []
    zygote, local, unused = (object(),) * 3
    formation = RankGroup(1, zygote, told.append, unused, unused)  # type: ignore[arg-type]  # no rank is forked
    formation._handle(local, Joined(0, 1, 2.0))  # type: ignore[arg-type]
    for step in steps:
        formation._handle(local, row(step))  # type: ignore[arg-type]
    assert [to_json(message) for message in formation.heard()] == [
        to_json(message) for message in (Joined(0, 1, 2.0), *map(row, kept))
    ]
    assert len(told) == 1 + len(steps)


@pytest.fixture
def rank() -> Iterator[tuple[LocalRank, socket.socket]]:
    """A rank from its agent's side, and its own end of the socket between them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for sock in (ours, theirs, asking):
        sock.setblocking(False)
    page = new_page()
    yield LocalRank(0, 1, ours, asking, ProgressPage(page), Path("log"), is_program=False), theirs
    os.close(page)
    for sock in (ours, theirs, asking, answering):
        sock.close()


class Waits:
    """A node whose shards have yet to come from others."""

    def __init__(self) -> None:
        self.fetched = asyncio.get_running_loop().create_future()
        self.lent: list[BuffersRequest] = []

    async def lend(self, want: BuffersRequest) -> Lent:
        await asyncio.shield(self.fetched)
        self.lent.append(want)
        return (), -1, ()


@pytest.mark.parametrize("end", ["come", "lost", "over"])
async def test_a_rank_gets_its_buffers_once_what_they_are_filled_from_is_here(
    rank: tuple[LocalRank, socket.socket], end: str
) -> None:
    local, theirs = rank
    node, want, unused = Waits(), BuffersRequest(0, 1, 64), object()
    formation = RankGroup(1, unused, unused, node.lend, unused)  # type: ignore[arg-type]  # no rank is forked
    formation.ranks[0] = local
    formation._handle(local, want)
    await asyncio.sleep(0.01)
    with pytest.raises(BlockingIOError):
        theirs.recv(4096)
    if end == "come":
        node.fetched.set_result(None)
        await asyncio.sleep(0.01)
        assert decode(theirs.recv(4096)) == Buffers(0, -1) and node.lent == [want]
    elif end == "lost":
        node.fetched.set_exception(TransferError("no shard of rank 3"))
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            theirs.recv(4096)
    else:
        formation.close()
        node.fetched.set_result(None)
        await asyncio.sleep(0.01)
        assert node.lent == [], "these would be buffers of the next generation"
