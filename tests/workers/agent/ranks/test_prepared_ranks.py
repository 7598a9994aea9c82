"""Ranks that are prepared while others train: real zygotes, processes and signals. They run without torch."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.generation_fence import StaleGeneration
from regroup.workers.agent.job_host import STORE_RANK, JobHost
from regroup.workers.agent.ranks import prepared_ranks, rank_group
from regroup.workers.agent.ranks.prepared_ranks import MemoryShortage
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.messages import Exited, FaultDue, Join, Joined, Message, from_json
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.start_messages import LATER, Prepared, Restore
from regroup.workers.os import procfs

RANKS = """
import os, time
from pathlib import Path
from regroup.workers.contract.messages import Joined
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.prepared_start import is_prepared, wait_for_begin
import socket

def main(fds):
    channel, page = Channel(socket.socket(fileno=fds[0])), ProgressPage(fds[1])
    join = channel.receive()
    if is_prepared(join):
        join = wait_for_begin(join, channel, page)
    channel.send(Joined(join.rank, join.generation, 1.0))
    (Path(os.environ["FOLDER"]) / f"up-{join.generation}-{join.rank}").write_text(f"{os.getpid()} {join.restore.step}")
    while True:
        time.sleep(0.01)
"""


class Node:
    """A host and the messages that it emitted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.messages = folder, list[Message]()
        (folder / "ranks_without_torch.py").write_text(RANKS)
        path = os.pathsep.join([str(folder), *filter(None, sys.path)])
        config = AgentConfig(
            job_id=uuid.uuid4().hex[:16], job_name="t", node_id="n", node_name="n", address="127.0.0.1",
            supervisor="s", storage_uri=f"file://{folder}/s", datasets_uri=f"file://{folder}/d", log_dir=str(folder),
            env={"PYTHONPATH": path, "FOLDER": str(folder)}, preload=("ranks_without_torch", "torch.distributed"),
        )  # fmt: skip
        self.host = JobHost(config, self._authorize_fault, self._receive)

    def up(self, generation: int) -> dict[int, tuple[int, int]]:
        """Return rank → pid and step, of the ranks of a generation that train."""
        found = {path: path.read_text().split() for path in self.folder.glob(f"up-{generation}-*")}
        return {int(path.name.rpartition("-")[2]): (int(text[0]), int(text[1])) for path, text in found.items() if text}

    def pids(self, generation: int, process: str = "rank") -> list[int]:
        """Return the live processes of a generation whose output has a name with `process`."""
        found: list[int] = []
        for pid in procfs.descendants(os.getpid()):
            try:
                target = os.readlink(f"/proc/{pid}/fd/1")
            except OSError:
                continue
            if f"-g{generation}-{process}" in target and not procfs.is_zombie(pid):
                found.append(pid)
        return found

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def of(self, kind: type[Any], generation: int) -> list[Any]:
        return [
            each for each in self.messages if isinstance(each, kind) and getattr(each, "generation", 0) == generation
        ]

    async def prepare(self, generation: int = 2) -> None:
        """Prepare ranks in addition to those of generation 1, and wait until they wait."""
        self.host.start_store(generation, is_next=True)
        before = len(self.of(Prepared, generation))
        await self.host.prepare_ranks(joins(generation, LATER), [0, 1])
        await self.until(lambda: len(self.of(Prepared, generation)) == before + 2)

    async def _authorize_fault(self, due: FaultDue) -> bool:
        return True

    def _receive(self) -> None:
        batch = self.host.outbox.next_batch()
        self.messages += [from_json(item) for _, item in batch]
        if batch:
            self.host.outbox.acknowledge("run", batch[-1][0], batch[-1][0])


def joins(generation: int, source: str) -> list[Join]:
    place = (2, 0, 1, {}, "cpu", "h", 1, Restore(source), "script:x", RankConfig())
    return [Join("j", generation, rank, 2, rank, *place) for rank in range(2)]


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node with two ranks of generation 1."""
    monkeypatch.setattr(rank_group, "RANK_TARGET", "ranks_without_torch:main")
    made = Node(tmp_path)
    await made.host.prepare()
    await made.host.form_ranks(joins(1, "none"), [0, 1], [])
    await made.until(lambda: len(made.up(1)) == 2)
    yield made
    await made.host.close()


async def test_prepared_ranks_train_once_the_ranks_before_them_are_dead(node: Node) -> None:
    await node.prepare()
    assert node.host.generation == 1 and node.host.report().running == (0, 1) and node.up(2) == {}
    assert len(node.pids(1)) == len(node.pids(2)) == 2
    assert await node.host.kill_ranks(1) == []
    assert node.pids(1) == [] and len(node.pids(2)) == 2 and node.up(2) == {}, "they wait for their state"
    await node.host.begin_ranks(2, Restore("none", step=7), [])
    await node.until(lambda: len(node.up(2)) == 2)
    assert {step for _, step in node.up(2).values()} == {7} and node.host.generation == 2
    assert node.host.next_ranks.generation == 0 and {each.rank for each in node.of(Joined, 2)} == {0, 1}
    assert node.host.rank_places[0][0].restore.step == 7
    assert await node.host.kill_ranks(2) == [] and node.pids(2) == []


async def test_a_prepared_rank_does_not_take_a_device_that_another_still_has(node: Node) -> None:
    """Let a supervisor begin without the death of the ranks before: no device gets two ranks."""
    await node.prepare()
    await node.host.begin_ranks(2, Restore("none"), [])
    await node.until(lambda: len(node.of(Exited, 2)) == 2)
    assert node.up(2) == {} and {each.code for each in node.of(Exited, 2)} == {1}


async def test_the_present_ranks_train_on_when_prepared_ones_are_discarded(node: Node) -> None:
    await node.prepare()
    await node.host.discard_ranks(1)
    assert len(node.pids(2)) == 2, "they are prepared for a later generation"
    await node.host.discard_ranks(2)
    assert node.pids(2) == node.pids(2, "store") == [] and len(node.pids(1)) == 2
    assert node.host.next_ranks.generation == 0
    await node.host.discard_ranks(2)
    assert node.of(Exited, 2) == [] and node.of(Exited, 1) == [], "no exit is reported"
    with pytest.raises(LookupError, match="generation 2 are not prepared"):
        await node.host.begin_ranks(2, Restore("none"), [])


async def test_the_death_of_a_prepared_rank_is_reported_and_prevents_its_use(node: Node) -> None:
    await node.prepare()
    os.kill(node.pids(2)[0], signal.SIGKILL)
    await node.until(lambda: node.of(Exited, 2))
    (exited,) = node.of(Exited, 2)
    assert exited.code == -9 and node.of(Exited, 1) == [] and node.host.report().running == (0, 1)
    await node.host.kill_ranks(1)
    with pytest.raises(LookupError):
        await node.host.begin_ranks(2, Restore("none"), [])
    await node.host.kill_ranks(2)
    assert node.pids(2) == []


async def test_the_death_of_a_prepared_store_is_reported(node: Node) -> None:
    await node.prepare()
    (store,) = node.pids(2, "store")
    os.kill(store, signal.SIGKILL)
    await node.until(lambda: node.of(Exited, 2))
    assert node.of(Exited, 2)[0].rank == STORE_RANK and node.host.report().running == (0, 1)


async def test_new_preparations_replace_the_ones_before(node: Node) -> None:
    await node.prepare()
    first = node.pids(2)
    await node.prepare()
    assert len(node.pids(2)) == 2 and not set(first) & set(node.pids(2))
    assert node.of(Exited, 2) == []


async def test_forming_the_generation_kills_ranks_that_were_prepared_for_it(node: Node) -> None:
    await node.prepare()
    prepared = node.pids(2)
    await node.host.kill_ranks(1)
    await node.host.form_ranks(joins(2, "none"), [0, 1], [])
    await node.until(lambda: len(node.up(2)) == 2)
    assert {pid for pid, _ in node.up(2).values()} == set(node.pids(2)) and not set(prepared) & set(node.pids(2))


async def test_only_a_later_generation_can_be_prepared(node: Node) -> None:
    with pytest.raises(StaleGeneration):
        await node.host.prepare_ranks(joins(1, LATER), [0, 1])
    with pytest.raises(StaleGeneration):
        node.host.start_store(1, is_next=True)
    assert node.host.fence.stale_calls == 2 and node.host.report().running == (0, 1)


async def test_a_node_without_memory_prepares_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_ranks.node_facts, "free_memory_bytes", lambda: 300 << 20)
    with pytest.raises(MemoryShortage, match="2 ranks of the next generation need up to"):
        await node.host.prepare_ranks(joins(2, LATER), [0, 1])
    assert node.pids(2) == [] and len(node.pids(1)) == 2


async def test_the_end_of_the_zygote_ends_prepared_ranks_too(node: Node) -> None:
    await node.prepare()
    zygote = node.host.pids().zygote
    assert zygote is not None
    os.kill(zygote, signal.SIGKILL)
    await node.until(lambda: len(node.of(Exited, 2)) >= 2)
    await node.host.kill_ranks(1)
    with pytest.raises(LookupError):
        await node.host.begin_ranks(2, Restore("none"), [])
