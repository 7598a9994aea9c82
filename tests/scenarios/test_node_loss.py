"""The permanent loss of a node. The next supervisor continues with a substitute, from the state of other nodes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from regroup.service.domain.job_events import JobRelocated
from regroup.service.ports.agents import AgentError
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import AgentErrorKind, ShardHolder, TransferAddress
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Exited, Join
from tests.support.doubles.supervised_job import STEPS, FakeNodes, Rig, place
from tests.support.inputs.sync_records import assigned, intents


class Nodes(FakeNodes):
    """Nodes that mirror each other's shards. One dies at a step, and its agent does not start again."""

    def __init__(self, dies: str, at_step: int) -> None:
        super().__init__({(1, at_step): dies})
        self.gone = dies
        self.forms: list[tuple[str, int, Sequence[ShardHolder]]] = []
        """Node, generation, and sources of the state of its ranks."""

    async def start(self, config: AgentConfig) -> None:
        if config.node_id == self.gone and self.generation.get(self.gone):
            await asyncio.Event().wait()
        await super().start(config)

    def _list_shards(self, node: str) -> list[HeldShard]:
        """Return own and mirrored shards. `FakeNodes` deletes the shards of a dead node."""
        own = super()._list_shards(node)
        return [*own, *(replace(held, rank=1 - held.rank) for held in own)]

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        self.forms.append((node, joins[0].generation, holders))
        super()._form_ranks(node, joins, devices, holders)


@pytest.fixture
async def rig() -> Rig:
    return Rig(Nodes("node-1", 4))


async def replace_node(rig: Rig) -> None:
    """Lose node 1 and continue with node 2."""
    await rig.wait_for_loss("node-1")
    nodes = [place("node-0"), place("node-2")]
    rig.life.set_intents(intents(nodes=nodes))
    assert (await rig.end()).nodes == assigned(nodes)
    rig.payload = rig.payload.with_nodes(assigned(nodes), rig.payload.layout)
    rig.begin()


async def test_the_job_continues_with_the_substitute(rig: Rig) -> None:
    await replace_node(rig)
    assert await rig.end() is None
    incident = (await rig.events("incident"))[-1]
    assert (incident["reason"], incident["recovery_action"], incident["steps_lost"]) == ("agent_lost", "spare", 0)
    assert "first_step_s" in incident["times"] and "decided_s" in incident["times"]
    formed = (await rig.events("generation"))[-1]
    assert (formed["number"], formed["start_step"], formed["cause"]) == (2, 3, "agent_lost")
    assert [place["node_id"] for place in formed["ranks"]] == ["node-0", "node-2"]
    address = TransferAddress("node-0", 1, "t", "node-0")
    assert isinstance(rig.nodes, Nodes)
    assert rig.nodes.forms[2:] == [("node-0", 2, []), ("node-2", 2, [ShardHolder(address, (1,))])], (
        "only missing shards are fetched"
    )
    assert (
        ((await rig.events("state"))[-1])["state"] == "SUCCEEDED"
        and ((await rig.events("result"))[-1])["step"] == STEPS
    )


class HolderDies(Nodes):
    """Nodes of which the one with the mirrors dies while another one fetches from it."""

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        if joins[0].generation == 2 and holders:
            holder = holders[0].address.host
            self.dead.add(holder)
            self._forget(holder)
            self.formed.append(2)
            message = "cannot fetch the shard of rank 1: connection reset by peer"
            raise AgentError(node, node, AgentErrorKind.TRANSFER, message, failed_holders=(holder,))
        super()._form_ranks(node, joins, devices, holders)


async def test_the_loss_of_a_holder_is_the_cause_of_a_failed_fetch() -> None:
    """Let the node that fetches report its failure first. The loss is known when the ranks are killed."""
    rig = Rig(HolderDies("node-1", 4))
    await replace_node(rig)
    assert await rig.end() is None
    incidents = {event["id"]: event for event in await rig.events("incident")}
    assert [(each["reason"], each["node_id"]) for each in incidents.values()] == [
        ("agent_lost", "node-1"),
        ("agent_lost", "node-0"),
    ]
    assert (await rig.events("state"))[-1]["state"] == "SUCCEEDED"


async def test_a_supervisor_that_restarts_during_a_node_loss_gets_the_new_nodes(rig: Rig) -> None:
    """Start with the nodes of the start configuration, and get the current nodes with the first sync."""
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


async def test_a_supervisor_that_restarts_after_a_reordering_keeps_ranks_in_place() -> None:
    """Start with the nodes of the start configuration, which now have another order."""
    rig = Rig(FakeNodes({(1, 4): Exited(0, 1, -9, 3.0)}))
    rig.running.cancel()
    placed, layout = [place("node-1"), place("node-0")], rig.payload.layout.to_json()
    relocation = JobRelocated(tuple(placed), former={}, attempt=0, layout=layout)
    await Journal(rig.records, "j").record("relocated:0:1", relocation, 0)
    rig.begin()
    assert (await rig.end()).nodes == assigned(placed)
    rig.payload = rig.payload.with_nodes(assigned(placed), rig.payload.layout)
    rig.begin()
    assert await rig.end() is None
    formed = await rig.events("generation")
    assert [[rank["node_id"] for rank in each["ranks"]] for each in formed] == [["node-1", "node-0"]] * 2


async def test_a_job_without_a_substitute_is_requeued(rig: Rig) -> None:
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


async def test_agents_that_do_not_start_are_reported_while_a_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.supervisor.gang_setup._OVERDUE_S", 0.05)
    nodes = Nodes("node-1", 99)
    nodes.generation["node-1"] = 1  # The agent never starts.
    rig = Rig(nodes)
    await asyncio.sleep(0)
    assert rig.life.status().lost == ()
    await rig.wait_for_loss("node-1")
    rig.life.set_intents(intents(cancel=True))
    await rig.end()
