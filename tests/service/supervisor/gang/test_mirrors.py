"""Mirrors in the supervisor. Each set follows the previous one, which is retained until the new set is complete."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery import mirror_memory
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.mirrors import Mirrors
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, AgentStatus, MirrorSent, TransferAddress
from regroup.workers.contract.messages import Note, Pinned, PinnedFor, StepRow
from tests.support.doubles.fake_agents import FakeAgents
from tests.support.doubles.memory_records import Records

PAIRS = {"a": "b", "b": "a"}


class Nodes(FakeAgents):
    """Two agents that send mirrors on request, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.retained: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
        self.refuse: set[str] = set()
        """Methods that fail."""
        self.capacity = 2
        """Number of sets that fit in memory, retained and in transfer. Further sets are refused."""
        self.hangs: set[str] = set()
        """Methods that do not return."""
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
        if self.capacity < 1 + ((self.retained["b"] or (0, 0)) != (0, 0)):
            raise self.error(node, AgentErrorKind.NO_MEMORY, "64 MiB would be left")
        return MirrorSent(1, 0.1)

    def _release_mirrors(self, node: str, generation: int, step: int) -> None:
        self.retained[node] = None

    def _retain_mirror(self, node: str, generation: int, step: int) -> None:
        self.retained[node] = (generation, step)

    def _status(self, node: str) -> AgentStatus:
        return AgentStatus(1, mirrored=self.retained[node])

    def count_requests(self) -> int:
        return sum(call[1] == "request_mirror" for call in self.calls)


class Rig:
    """A job of two nodes with one rank each, which may send mirrors at any time."""

    def __init__(self, share: float = 1.0) -> None:
        self.nodes = Nodes()
        configs = {node: AgentConfig("j", "t", node, node, "h", "s", "file:///s", "file:///d") for node in PAIRS}
        self.journal = Journal(Records(), "j")
        self.mirrors = Mirrors(PAIRS, share, None, Gang(self.nodes, configs), self.journal)
        self.monitor = self.generation(1)

    def generation(self, number: int) -> GenerationMonitor:
        places = tuple(RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate(PAIRS))
        return GenerationMonitor(
            Generation(number, Layout(dp_shard=2), RankMap.of(places), RestoreSource(RestoreKind.NONE), "start")
        )

    def complete_step(self) -> None:
        number = self.monitor.generation.number
        self.monitor.receive("a", StepRow(number, 1, 1.0, 0.1, 1.0, 1, 1, 1, 0.1, 1.0))

    def pin(self, step: int) -> None:
        for rank, node in enumerate(PAIRS):
            self.monitor.receive(node, Pinned(rank, self.monitor.generation.number, step, 0, PinnedFor.MIRROR))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.mirrors.poll(self.monitor)
                await asyncio.sleep(0.001)

    async def round(self, step: int) -> None:
        """Mirror one set, from the request on."""
        before = self.nodes.count_requests()
        await self.until(lambda: self.nodes.count_requests() > before)
        self.pin(step)
        await self.until(lambda: self.mirrors.step == step)

    async def refuse_round(self, step: int) -> None:
        """Request one set for which a node has no memory."""
        before, calls = self.nodes.count_requests(), len(self.nodes.calls)
        await self.until(lambda: self.nodes.count_requests() > before)
        self.pin(step)
        await self.until(lambda: [call for call in self.nodes.calls[calls:] if call[1] == "retain_mirror"] != [])


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_each_set_is_requested_sent_and_retained_before_the_next(rig: Rig) -> None:
    rig.complete_step()
    await rig.round(2)
    assert rig.nodes.retained == {"a": (1, 2), "b": (1, 2)}
    await rig.round(5)
    assert rig.nodes.retained == {"a": (1, 5), "b": (1, 5)}
    sent = [call for call in rig.nodes.calls if call[1] == "send_mirror"]
    to_b, to_a = (TransferAddress(node, 1, "t", node) for node in ("b", "a"))
    assert sent == [(node, "send_mirror", 1, step, [rank], to, None)
                    for step in (2, 5) for node, rank, to in (("a", 0, to_b), ("b", 1, to_a))]  # fmt: skip
    assert all(call[0] == "a" for call in rig.nodes.calls if call[1] == "request_mirror"), (
        "the supervisor sends requests to the node of the first rank"
    )


async def test_no_mirror_is_requested_before_the_first_step(rig: Rig) -> None:
    for _ in range(20):
        rig.mirrors.poll(rig.monitor)
        await asyncio.sleep(0.001)
    assert rig.nodes.calls == []


async def test_a_set_that_not_all_ranks_have_is_not_sent(rig: Rig) -> None:
    rig.complete_step()
    await rig.until(lambda: rig.nodes.count_requests() == 1)
    rig.monitor.receive("a", Pinned(0, 1, 2, 0, PinnedFor.MIRROR))
    for _ in range(20):
        rig.mirrors.poll(rig.monitor)
        await asyncio.sleep(0.001)
    assert not [call for call in rig.nodes.calls if call[1] == "send_mirror"]
    assert rig.nodes.count_requests() == 1


async def test_a_failed_set_leaves_the_previous_one_and_is_reported_once(rig: Rig) -> None:
    rig.complete_step()
    await rig.round(2)
    rig.nodes.refuse.add("send_mirror")
    for step in (4, 6):
        before = rig.nodes.count_requests()
        await rig.until(lambda before=before: rig.nodes.count_requests() > before)
        rig.pin(step)
        calls = [call for call in rig.nodes.calls if call[1] == "retain_mirror"]
        await rig.until(lambda calls=calls: len([c for c in rig.nodes.calls if c[1] == "retain_mirror"]) > len(calls))
    assert rig.nodes.retained == {"a": (1, 2), "b": (1, 2)} and rig.mirrors.step == 2
    notes = {event.key: event.data for event in await rig.journal.replay() if event.data.get("kind") == "mirror_failed"}
    assert [note["step"] for note in notes.values()] == [4]
    rig.nodes.refuse.clear()
    await rig.round(8)


async def test_a_restarted_supervisor_finds_the_retained_set(rig: Rig) -> None:
    """Recover from a kill between two notifications: the newest set that an agent retains is complete."""
    rig.nodes.retained = {"a": (1, 2), "b": (1, 5)}
    rig.complete_step()
    await rig.until(lambda: rig.nodes.count_requests() == 1)
    assert rig.nodes.retained == {"a": (1, 5), "b": (1, 5)}
    assert not [event for event in await rig.journal.since("", 0, 0) if event.type == "mirror"], (
        "the last event is still valid"
    )


async def test_a_lost_node_makes_mirrors_incomplete_until_the_next_set(rig: Rig) -> None:
    rig.complete_step()
    await rig.round(2)
    rig.mirrors.record_loss()
    assert rig.mirrors.step is None
    rig.monitor = rig.generation(2)
    rig.complete_step()
    await rig.round(3)
    assert rig.nodes.retained == {"a": (2, 3), "b": (2, 3)}


async def test_the_supervisor_does_not_wait_for_a_set_of_a_lost_node(rig: Rig) -> None:
    rig.complete_step()
    await rig.round(2)
    rig.nodes.hangs.add("send_mirror")
    await rig.until(lambda: rig.nodes.count_requests() == 2)
    rig.pin(4)
    for _ in range(20):
        rig.mirrors.poll(rig.monitor)
        await asyncio.sleep(0.001)
    rig.nodes.hangs.clear()
    rig.mirrors.record_loss()
    rig.monitor = rig.generation(2)
    rig.complete_step()
    await rig.round(6)
    assert rig.nodes.retained == {"a": (2, 6), "b": (2, 6)}


async def test_a_lost_agent_only_discards_the_set(rig: Rig) -> None:
    rig.complete_step()
    await rig.until(lambda: rig.nodes.count_requests() == 1)
    rig.nodes.lost.add("b")
    rig.pin(2)
    await rig.until(lambda: rig.nodes.retained["a"] == (0, 0))
    assert rig.mirrors.step is None


async def test_sending_pauses_to_stay_within_its_share() -> None:
    rig = Rig(share=1e-6)
    rig.complete_step()
    await rig.round(2)
    for _ in range(50):
        rig.mirrors.poll(rig.monitor)
        await asyncio.sleep(0.001)
    assert rig.nodes.count_requests() == 1


async def test_a_memory_shortage_reduces_the_sets_and_later_allows_them_again(rig: Rig) -> None:
    rig.mirrors._allowed = mirror_memory.MirrorAllowance(pause_s=3600.0)
    rig.complete_step()
    await rig.round(2)
    rig.nodes.capacity = 1
    await rig.refuse_round(4)
    assert (rig.mirrors.step, rig.nodes.retained["b"]) == (2, (1, 2)), "the previous set stays retained"
    await rig.round(6)
    released = [call for call in rig.nodes.calls if call[1] == "release_mirrors"]
    assert released == [("a", "release_mirrors", 1, 6), ("b", "release_mirrors", 1, 6)]
    rig.nodes.capacity = 0
    await rig.refuse_round(8)
    requested = rig.nodes.count_requests()
    for _ in range(20):
        rig.mirrors.poll(rig.monitor)
        await asyncio.sleep(0.001)
    assert (rig.nodes.count_requests(), rig.mirrors.step, rig.nodes.retained["b"]) == (requested, None, (0, 0))
    rig.nodes.capacity = 2
    rig.mirrors._allowed = replace(rig.mirrors._allowed, pause_s=0.0)
    await rig.round(9)
    events = [event.data for event in await rig.journal.since("", 0, 0) if event.type == "mirror"]
    assert [(each["step"], each["sets"]) for each in events] == [
        (2, 2), (2, 1), (None, 1), (6, 1), (None, 1), (None, 0), (None, 1), (None, 2), (9, 2),
    ]  # fmt: skip
    assert "64 MiB would be left" in events[1]["why"] and events[-1]["why"] == ""


async def test_mirrors_are_released_on_a_node_that_reports_a_memory_shortage(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_memory, "STILL_SHORT_S", 0.0)
    rig.complete_step()
    await rig.round(2)
    rig.monitor.receive("b", Note(1, "condition", {"node": "b", "what": "memory", "message": "9 MiB are free"}, 1.0))
    await rig.until(lambda: rig.nodes.retained == {"a": (0, 0), "b": (0, 0)})
    rig.monitor.receive("b", Note(1, "condition", {"node": "b", "what": "memory", "message": ""}, 2.0))
    rig.mirrors._allowed = replace(rig.mirrors._allowed, pause_s=0.0)
    await rig.round(5)


async def test_a_job_of_one_node_has_no_mirrors() -> None:
    rig = Rig()
    rig.mirrors = Mirrors({}, 1.0, None, Gang(rig.nodes, {}), rig.journal)
    rig.complete_step()
    rig.mirrors.poll(rig.monitor)
    await asyncio.sleep(0.01)
    assert rig.nodes.calls == []
