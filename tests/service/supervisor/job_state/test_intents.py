"""Waits that end when the intents of the controller change."""

import asyncio
from typing import Any

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import EndRequest, Intents, SyncRequest
from regroup.service.supervisor.job_state.intents import IntentTracker, SyncReader
from regroup.service.supervisor.job_state.outcomes import Finished, Relocated, shape_of

LAYOUT = Layout(dp_shard=2)
OWN, OTHERS = (tuple(NodeAssignment(node, node, "h", 1) for node in names) for names in ("ab", "ac"))


def make_tracker() -> IntentTracker:
    return IntentTracker({"a": "a", "b": "b"}, shape_of(OWN, LAYOUT))


async def start_wait(tracker: IntentTracker, **options: bool) -> tuple["asyncio.Task[Any]", asyncio.Event]:
    """Return a task that waits for endless work, and an event that is set when the work is cancelled."""
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(tracker.interruptible(work(), **options))
    await asyncio.sleep(0.01)
    return waiting, cancelled


async def test_a_wait_returns_the_result_of_its_work() -> None:
    tracker = make_tracker()
    assert not tracker.update(Intents())
    assert await tracker.interruptible(asyncio.sleep(0.01, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        await tracker.interruptible(fails())


async def fails() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("intents", "reason"),
    [
        (Intents(cancel=True), Reason.CANCELLED_BY_USER),
        (Intents(end=EndRequest(Reason.MAX_DURATION)), Reason.MAX_DURATION),
    ],
)
async def test_the_end_of_a_job_cancels_each_wait(intents: Intents, reason: Reason) -> None:
    tracker = make_tracker()
    waiting, cancelled = await start_wait(tracker)
    assert tracker.update(intents)
    with pytest.raises(Finished) as ended:
        await waiting
    assert ended.value.reason is reason and cancelled.is_set()


async def test_new_nodes_end_a_wait_unless_the_relocation_needs_its_result() -> None:
    tracker = make_tracker()
    assert not tracker.update(Intents(nodes=OWN[::-1])), "the nodes are the same"
    free, _ = await start_wait(tracker)
    needed, cancelled = await start_wait(tracker, by_relocation=False)
    assert tracker.update(Intents(nodes=OTHERS))
    with pytest.raises(Relocated) as relocated:
        await free
    assert relocated.value.nodes == OTHERS
    await asyncio.sleep(0.01)
    assert not needed.done()
    tracker.update(Intents(nodes=OTHERS, cancel=True))
    with pytest.raises(Finished):
        await needed
    assert cancelled.is_set()


async def test_a_missing_spare_ends_a_wait_only_while_a_node_is_lost() -> None:
    tracker = make_tracker()
    assert not tracker.update(Intents(no_spare="all are busy"))
    tracker.lost_nodes = ("b",)
    waiting, _ = await start_wait(tracker)
    tracker.update(Intents(no_spare="all are busy"))
    with pytest.raises(AgentLostError, match="all are busy") as lost:
        await waiting
    assert lost.value.node_id == "b"
    tracker.update(Intents(no_spare="all are busy", nodes=OTHERS))
    assert isinstance(tracker.interruption(), Relocated), "a substitute has arrived"


def test_nodes_that_are_as_before_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parse = list[Any](), NodeAssignment.from_json

    def counted(data: Any) -> NodeAssignment:
        parsed.append(data)
        return parse(data)

    monkeypatch.setattr(NodeAssignment, "from_json", counted)
    reader = SyncReader()
    first = SyncRequest(Intents(nodes=OWN, cancel=True), 7, "boot", 2.0, 1.0)
    assert reader.read(first.to_json()) == first
    assert reader.read(first.to_json()) == first and len(parsed) == len(OWN)
    other = SyncRequest(Intents(nodes=OTHERS))
    assert reader.read(other.to_json()) == other
    assert reader.read(SyncRequest().to_json()) == SyncRequest()
