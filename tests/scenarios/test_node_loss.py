"""A node is gone for good and another is given: the next life goes on with it, from what the others hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from regroup.service.domain.job_events import JobRelocated
from regroup.service.supervisor.journal import Journal
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import TransferAddress
from regroup.workers.contract.messages import Exited, Join, VerifiedShard
from tests.support.doubles.supervised_job import STEPS, FakeNodes, Rig, place
from tests.support.inputs.sync_records import assigned, intents


class Nodes(FakeNodes):
    """Of which one dies at a step, and no agent comes up there again. Each holds the other's shards, too."""

    def __init__(self, dies: str, at_step: int) -> None:
        super().__init__({(1, at_step): dies})
        self.gone = dies
        self.forms: list[tuple[str, int, dict[int, TransferAddress]]] = []
        """Node, generation, and where its ranks' state was fetched from."""

    async def start(self, config: AgentConfig) -> None:
        if config.node_id == self.gone and self.generation.get(self.gone):
            await asyncio.Event().wait()
        await super().start(config)

    def _list_shards(self, node: str) -> list[VerifiedShard]:
        """The other's as well, as long as it has any; `FakeNodes` forgets what a dead node held."""
        own = super()._list_shards(node)
        return [*own, *(replace(held, rank=1 - held.rank) for held in own)]

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: dict[int, TransferAddress]
    ) -> None:
        self.forms.append((node, joins[0].generation, holders))
        super()._form_ranks(node, joins, devices, holders)


@pytest.fixture
async def rig() -> Rig:
    return Rig(Nodes("node-1", 4))


async def moved(rig: Rig) -> None:
    """The job has lost a node, and goes on with another."""
    await rig.wait_for_loss("node-1")
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    assert (await rig.end()).nodes == assigned(nodes)
    rig.payload = rig.payload.with_nodes(assigned(nodes), rig.payload.layout)
    rig.begin()


async def test_the_job_goes_on_with_the_node_that_was_given(rig: Rig) -> None:
    await moved(rig)
    assert await rig.end() is None
    incident = (await rig.events("incident"))[-1]
    assert (incident["reason"], incident["recovery_action"], incident["steps_lost"]) == ("agent_lost", "spare", 0)
    assert "first_step_s" in incident["times"] and "decided_s" in incident["times"]
    formed = (await rig.events("generation"))[-1]
    assert (formed["number"], formed["start_step"], formed["cause"]) == (2, 3, "agent_lost")
    assert [place["node_id"] for place in formed["ranks"]] == ["node-0", "node-2"]
    address = TransferAddress("node-0", 1, "t")
    assert rig.nodes.forms[2:] == [("node-0", 2, {}), ("node-2", 2, {1: address})], "only what is not there is fetched"
    assert (
        ((await rig.events("state"))[-1])["state"] == "SUCCEEDED"
        and ((await rig.events("result"))[-1])["step"] == STEPS
    )


async def test_a_supervisor_that_restarts_meanwhile_asks_again_and_moves(rig: Rig) -> None:
    """It is born with the nodes of the beginning, and hears with its first sync which ones they are now."""
    await rig.wait_for_loss("node-1")
    rig.running.cancel()
    rig.begin()
    await asyncio.sleep(0.05)
    assert not rig.running.done()
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    assert (await rig.end()).nodes == assigned(nodes)
    rig.payload = rig.payload.with_nodes(assigned(nodes), rig.payload.layout)
    rig.begin()
    assert await rig.end() is None
    assert ((await rig.events("incident"))[-1])["recovery_action"] == "spare"


async def test_a_supervisor_that_restarts_where_nodes_have_changed_places_leaves_ranks_where_they_are() -> None:
    """It is born with the nodes of the beginning; the job has been elsewhere since, and has them in another order."""
    rig = Rig(FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)}))
    rig.running.cancel()
    placed, layout = [place("node-1"), place("node-0")], rig.payload.layout.to_json()
    moved = JobRelocated(tuple(placed), former={}, attempt=0, layout=layout)
    await Journal(rig.records, "j").record("relocated:0:1", moved, 0)
    rig.begin()
    assert (await rig.end()).nodes == assigned(placed)
    rig.payload = rig.payload.with_nodes(assigned(placed), rig.payload.layout)
    rig.begin()
    assert await rig.end() is None
    formed = await rig.events("generation")
    assert [[rank["node_id"] for rank in each["ranks"]] for each in formed] == [["node-1", "node-0"]] * 2


async def test_a_node_that_nobody_replaces_ends_in_the_queue(rig: Rig) -> None:
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(no_spare="no other node has capacity for 1 of 2 ranks"))
    assert await rig.end() is None
    state = (await rig.events("state"))[-1]
    assert (state["state"], state["reason"]) == ("QUEUED", "requeued")
    assert "no other node has capacity" in state["message"]


async def test_a_job_that_waits_for_a_node_can_be_cancelled(rig: Rig) -> None:
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(cancel=True))
    await rig.end()
    assert ((await rig.events("state"))[-1])["state"] == "CANCELLED"


async def test_agents_that_do_not_come_up_are_told_while_a_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.supervisor.gang_setup._OVERDUE_S", 0.05)
    nodes = Nodes("node-1", 99)
    nodes.generation["node-1"] = 1  # it never comes up
    rig = Rig(nodes)
    await asyncio.sleep(0)
    assert rig.life.status().lost == ()
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(cancel=True))
    await rig.end()
