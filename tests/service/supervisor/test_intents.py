"""Waiting that ends when the controller wants something else of the job."""

import asyncio
from typing import Any

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.agents import AgentLostError
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.sync import EndRequest, Intents
from regroup.service.supervisor.intents import IntentTracker
from regroup.service.supervisor.outcomes import Finished, Relocated, shape_of

LAYOUT = Layout(dp_shard=2)
OWN, OTHERS = (tuple(NodeAssignment(node, node, "h", 1) for node in names) for names in ("ab", "ac"))


def intended() -> IntentTracker:
    return IntentTracker({"a": "a", "b": "b"}, shape_of(OWN, LAYOUT))


async def waits(wanted: IntentTracker, **options: bool) -> tuple["asyncio.Task[Any]", asyncio.Event]:
    """A task that waits for work that does not end by itself, and what tells that the work was given up."""
    given_up = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    waiting = asyncio.create_task(wanted.interruptible(work(), **options))
    await asyncio.sleep(0.01)
    return waiting, given_up


async def test_work_that_ends_is_waited_for() -> None:
    wanted = intended()
    assert not wanted.update(Intents())
    assert await wanted.interruptible(asyncio.sleep(0.01, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        await wanted.interruptible(fails())


async def fails() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("intents", "reason"),
    [
        (Intents(cancel=True), Reason.CANCELLED_BY_USER),
        (Intents(end=EndRequest(Reason.MAX_DURATION)), Reason.MAX_DURATION),
    ],
)
async def test_a_job_that_is_to_end_waits_for_nothing(intents: Intents, reason: Reason) -> None:
    wanted = intended()
    waiting, given_up = await waits(wanted)
    assert wanted.update(intents)
    with pytest.raises(Finished) as ended:
        await waiting
    assert ended.value.reason is reason and given_up.is_set()


async def test_other_nodes_end_a_wait_unless_it_is_needed_before_one_goes_there() -> None:
    wanted = intended()
    assert not wanted.update(Intents(nodes=OWN[::-1])), "they are the same"
    free, _ = await waits(wanted)
    needed, given_up = await waits(wanted, by_relocation=False)
    assert wanted.update(Intents(nodes=OTHERS))
    with pytest.raises(Relocated) as moved:
        await free
    assert moved.value.nodes == OTHERS
    await asyncio.sleep(0.01)
    assert not needed.done()
    wanted.update(Intents(nodes=OTHERS, cancel=True))
    with pytest.raises(Finished):
        await needed
    assert given_up.is_set()


async def test_that_there_is_no_spare_matters_only_while_a_node_is_lost() -> None:
    wanted = intended()
    assert not wanted.update(Intents(no_spare="all are busy"))
    wanted.lost_nodes = ("b",)
    waiting, _ = await waits(wanted)
    wanted.update(Intents(no_spare="all are busy"))
    with pytest.raises(AgentLostError, match="all are busy") as lost:
        await waiting
    assert lost.value.node_id == "b"
    wanted.update(Intents(no_spare="all are busy", nodes=OTHERS))
    assert isinstance(wanted.interruption(), Relocated), "a node has come after all"
