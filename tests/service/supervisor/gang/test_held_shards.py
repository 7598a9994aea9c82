"""Sets of training state on the nodes that answer."""

from collections.abc import Sequence
from typing import Any

from regroup.service.ports.agents import AgentLostError
from regroup.service.supervisor.gang import held_shards
from regroup.workers.contract.held_sets import HeldShard
from tests.support.doubles.fake_agents import FakeAgents


class Nodes(FakeAgents):
    """Each node has two sets of two ranks. Node n1 is lost."""

    async def intercept(self, node_id: str, method: str, arguments: Sequence[Any]) -> None:
        if node_id == "n1":
            raise AgentLostError(node_id, "lost")

    def _list_shards(self, node: str) -> list[HeldShard]:
        first = 2 * int(node[1:])
        return [HeldShard(first + k, 6, 1, step, "layout", {"w": step}) for step in (4, 5) for k in range(2)]


async def test_the_sets_of_a_lost_node_are_left_out_and_each_one_names_its_node() -> None:
    found = await held_shards.find(Nodes(), ["n0", "n1", "n2"], lambda agent: agent.list_shards())
    assert [(each.node_id, each.held.ranks, each.name) for each in found] == [
        ("n0", (0, 1), (1, 4)), ("n0", (0, 1), (1, 5)), ("n2", (4, 5), (1, 4)), ("n2", (4, 5), (1, 5)),
    ]  # fmt: skip
    assert found[0].held.digests == ({"w": 4},) and found[0].held.world_size == 6


async def test_only_the_shards_of_the_set_are_verified() -> None:
    found = await held_shards.verify(Nodes(), ["n0"], 1, 5)
    assert [(each.name, each.held.is_verified) for each in found] == [((1, 5), True)]
