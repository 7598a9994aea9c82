"""Shards of the nodes that answer."""

from collections.abc import Sequence
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang import held_shards
from regroup.workers.contract.messages import HeldShard
from tests.support.doubles.fake_agents import FakeAgents


class Nodes(FakeAgents):
    """Each node has two shards of its rank. Node n1 is lost."""

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        if node_id == "n1":
            raise AgentLostError(node_id, "lost")

    def _list_shards(self, node: str) -> list[HeldShard]:
        return [HeldShard(int(node[1:]), 3, 1, step, "layout", 10, {"w": step}) for step in (4, 5)]


async def test_the_shards_of_a_lost_node_are_left_out_and_each_one_names_its_node() -> None:
    found = await held_shards.find(Nodes(), ["n0", "n1", "n2"], lambda agent: agent.list_shards())
    assert [(shard.node_id, shard.rank, shard.step) for shard in found] == [
        ("n0", 0, 4), ("n0", 0, 5), ("n2", 2, 4), ("n2", 2, 5),
    ]  # fmt: skip
    assert found[0].shared_checksums == {"w": 4} and found[0].world_size == 3


async def test_only_the_shards_of_the_set_are_verified() -> None:
    found = await held_shards.verify(Nodes(), ["n0"], 1, 5)
    assert [shard.step for shard in found] == [5]
