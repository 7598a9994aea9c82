"""Mirrors as a supervisor keeps them: one set after the other, and the last whole one until a newer is."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.policy.recovery import mirror_memory
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.mirrors import Mirrors
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, AgentStatus, MirrorSent, TransferAddress
from regroup.workers.contract.messages import Note, Pinned, PinnedFor, StepRow
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

PAIRS = {"a": "b", "b": "a"}


class Nodes(FakeAgents):
    """Two agents that send what they are told to, or do not."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
        self.refuse: set[str] = set()
        """Methods that fail."""
        self.has_room = 2
        """Sets that fit at once, held and on their way; fewer are refused for want of memory."""
        self.hangs: set[str] = set()
        """Methods that do not end."""
        self.lost: set[str] = set()

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        await asyncio.sleep(0)
        if node_id in self.lost:
            raise AgentLostError(node_id, f"agent on {node_id} is gone")
        if method in self.hangs:
            await asyncio.Event().wait()
        if method in self.refuse:
            raise self.error(node_id, AgentErrorKind.TRANSFER, "refused")
        self.calls.append((node_id, method, *arguments))

    def _send_mirror(
        self, node: str, generation: int, step: int, ranks: Sequence[int], to: TransferAddress, rate: float | None
    ) -> MirrorSent:
        if self.has_room < 1 + ((self.kept["b"] or (0, 0)) != (0, 0)):
            raise self.error(node, AgentErrorKind.NO_MEMORY, "64 MiB would be left")
        return MirrorSent(1, 0.1)

    def _release_mirrors(self, node: str, generation: int, step: int) -> None:
        self.kept[node] = None

    def _retain_mirror(self, node: str, generation: int, step: int) -> None:
        self.kept[node] = (generation, step)

    def _status(self, node: str) -> AgentStatus:
        return AgentStatus(1, mirrored=self.kept[node])

    def asked(self) -> int:
        return sum(call[1] == "request_mirror" for call in self.calls)


class Rig:
    """A job of two nodes, one rank each, whose mirrors may be sent all the time."""

    def __init__(self, share: float = 1.0) -> None:
        self.nodes = Nodes()
        configs = {node: AgentConfig("j", "t", node, node, "h", "s", "file:///s", "file:///d") for node in PAIRS}
        self.journal = Journal(Records(), "j")
        self.mirrors = Mirrors(PAIRS, share, None, Gang(self.nodes, configs), self.journal)
        self.watch = self.generation(1)

    def generation(self, number: int) -> GenerationMonitor:
        places = tuple(RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate(PAIRS))
        return GenerationMonitor(
            Generation(number, Layout(dp_shard=2), places, RestoreSource(RestoreKind.NONE), "start")
        )

    def trains(self) -> None:
        number = self.watch.generation.number
        self.watch.receive("a", StepRow(number, 1, 1.0, 0.1, 1.0, 1, 1, 1, 0.1, 1.0))

    def pins(self, step: int) -> None:
        for rank, node in enumerate(PAIRS):
            self.watch.receive(node, Pinned(rank, self.watch.generation.number, step, 0, PinnedFor.MIRROR))

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():
                self.mirrors.poll(self.watch)
                await asyncio.sleep(0.001)

    async def round(self, step: int) -> None:
        """One set, from the asking on."""
        before = self.nodes.asked()
        await self.until(lambda: self.nodes.asked() > before)
        self.pins(step)
        await self.until(lambda: self.mirrors.step == step)

    async def refused(self, step: int) -> None:
        """One set that a node has no room for."""
        before, calls = self.nodes.asked(), len(self.nodes.calls)
        await self.until(lambda: self.nodes.asked() > before)
        self.pins(step)
        await self.until(lambda: [call for call in self.nodes.calls[calls:] if call[1] == "retain_mirror"] != [])


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_a_set_is_asked_for_sent_and_kept_and_then_the_next(rig: Rig) -> None:
    rig.trains()
    await rig.round(2)
    assert rig.nodes.kept == {"a": (1, 2), "b": (1, 2)}
    await rig.round(5)
    assert rig.nodes.kept == {"a": (1, 5), "b": (1, 5)}
    sent = [call for call in rig.nodes.calls if call[1] == "send_mirror"]
    to_b, to_a = (TransferAddress(node, 1, "t") for node in ("b", "a"))
    assert sent == [(node, "send_mirror", 1, step, [rank], to, None)
                    for step in (2, 5) for node, rank, to in (("a", 0, to_b), ("b", 1, to_a))]  # fmt: skip
    assert all(call[0] == "a" for call in rig.nodes.calls if call[1] == "request_mirror"), "the leading rank's node"


async def test_nothing_is_asked_before_the_first_step(rig: Rig) -> None:
    for _ in range(20):
        rig.mirrors.poll(rig.watch)
        await asyncio.sleep(0.001)
    assert rig.nodes.calls == []


async def test_a_set_that_not_all_ranks_hold_is_not_sent(rig: Rig) -> None:
    rig.trains()
    await rig.until(lambda: rig.nodes.asked() == 1)
    rig.watch.receive("a", Pinned(0, 1, 2, 0, PinnedFor.MIRROR))
    for _ in range(20):
        rig.mirrors.poll(rig.watch)
        await asyncio.sleep(0.001)
    assert not [call for call in rig.nodes.calls if call[1] == "send_mirror"]
    assert rig.nodes.asked() == 1


async def test_one_that_fails_leaves_the_one_before_and_is_said_once(rig: Rig) -> None:
    rig.trains()
    await rig.round(2)
    rig.nodes.refuse.add("send_mirror")
    for step in (4, 6):
        before = rig.nodes.asked()
        await rig.until(lambda before=before: rig.nodes.asked() > before)
        rig.pins(step)
        keeps = [call for call in rig.nodes.calls if call[1] == "retain_mirror"]
        await rig.until(lambda keeps=keeps: len([c for c in rig.nodes.calls if c[1] == "retain_mirror"]) > len(keeps))
    assert rig.nodes.kept == {"a": (1, 2), "b": (1, 2)} and rig.mirrors.step == 2
    notes = {event.key: event.data for event in await rig.journal.replay() if event.data.get("kind") == "mirror_failed"}
    assert [note["step"] for note in notes.values()] == [4]
    rig.nodes.refuse.clear()
    await rig.round(8)


async def test_a_supervisor_that_restarts_finds_the_set_again(rig: Rig) -> None:
    """Killed between two agents that it told: whoever was told a newer one names the set that all have."""
    rig.nodes.kept = {"a": (1, 2), "b": (1, 5)}
    rig.trains()
    await rig.until(lambda: rig.nodes.asked() == 1)
    assert rig.nodes.kept == {"a": (1, 5), "b": (1, 5)}
    assert not [event for event in await rig.journal.since("", 0, 0) if event.type == "mirror"], "what it said holds"


async def test_after_a_lost_node_no_mirror_is_whole_until_the_next(rig: Rig) -> None:
    rig.trains()
    await rig.round(2)
    rig.mirrors.record_loss()
    assert rig.mirrors.step is None
    rig.watch = rig.generation(2)
    rig.trains()
    await rig.round(3)
    assert rig.nodes.kept == {"a": (2, 3), "b": (2, 3)}


async def test_nobody_waits_for_what_a_lost_node_was_to_send(rig: Rig) -> None:
    rig.trains()
    await rig.round(2)
    rig.nodes.hangs.add("send_mirror")
    await rig.until(lambda: rig.nodes.asked() == 2)
    rig.pins(4)
    for _ in range(20):
        rig.mirrors.poll(rig.watch)
        await asyncio.sleep(0.001)
    rig.nodes.hangs.clear()
    rig.mirrors.record_loss()
    rig.watch = rig.generation(2)
    rig.trains()
    await rig.round(6)
    assert rig.nodes.kept == {"a": (2, 6), "b": (2, 6)}


async def test_an_agent_that_is_gone_breaks_nothing(rig: Rig) -> None:
    rig.trains()
    await rig.until(lambda: rig.nodes.asked() == 1)
    rig.nodes.lost.add("b")
    rig.pins(2)
    await rig.until(lambda: rig.nodes.kept["a"] == (0, 0))
    assert rig.mirrors.step is None


async def test_sending_rests_for_its_share() -> None:
    rig = Rig(share=1e-6)
    rig.trains()
    await rig.round(2)
    for _ in range(50):
        rig.mirrors.poll(rig.watch)
        await asyncio.sleep(0.001)
    assert rig.nodes.asked() == 1


async def test_where_memory_is_short_there_are_fewer_then_none_and_more_again_later(rig: Rig) -> None:
    rig.mirrors._allowed = mirror_memory.MirrorAllowance(pause_s=3600.0)
    rig.trains()
    await rig.round(2)
    rig.nodes.has_room = 1
    await rig.refused(4)
    assert (rig.mirrors.step, rig.nodes.kept["b"]) == (2, (1, 2)), "the set before is kept as long as there is another"
    await rig.round(6)
    made_room = [call for call in rig.nodes.calls if call[1] == "release_mirrors"]
    assert made_room == [("a", "release_mirrors", 1, 6), ("b", "release_mirrors", 1, 6)]
    rig.nodes.has_room = 0
    await rig.refused(8)
    asked = rig.nodes.asked()
    for _ in range(20):
        rig.mirrors.poll(rig.watch)
        await asyncio.sleep(0.001)
    assert (rig.nodes.asked(), rig.mirrors.step, rig.nodes.kept["b"]) == (asked, None, (0, 0))
    rig.nodes.has_room = 2
    rig.mirrors._allowed = replace(rig.mirrors._allowed, pause_s=0.0)
    await rig.round(9)
    said = [event.data for event in await rig.journal.since("", 0, 0) if event.type == "mirror"]
    assert [(each["step"], each["sets"]) for each in said] == [
        (2, 2), (2, 1), (None, 1), (6, 1), (None, 1), (None, 0), (None, 1), (None, 2), (9, 2),
    ]  # fmt: skip
    assert "64 MiB would be left" in said[1]["why"] and said[-1]["why"] == ""


async def test_a_node_that_says_that_its_memory_is_short_is_relieved(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_memory, "STILL_SHORT_S", 0.0)
    rig.trains()
    await rig.round(2)
    rig.watch.receive("b", Note(1, "condition", {"node": "b", "what": "memory", "message": "9 MiB are free"}, 1.0))
    await rig.until(lambda: rig.nodes.kept == {"a": (0, 0), "b": (0, 0)})
    rig.watch.receive("b", Note(1, "condition", {"node": "b", "what": "memory", "message": ""}, 2.0))
    rig.mirrors._allowed = replace(rig.mirrors._allowed, pause_s=0.0)
    await rig.round(5)


async def test_a_job_of_one_node_is_left_alone() -> None:
    rig = Rig()
    rig.mirrors = Mirrors({}, 1.0, None, Gang(rig.nodes, {}), rig.journal)
    rig.trains()
    rig.mirrors.poll(rig.watch)
    await asyncio.sleep(0.01)
    assert rig.nodes.calls == []
