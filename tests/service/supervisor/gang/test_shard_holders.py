"""Holders of the state of a generation, as each node gets them."""

from collections.abc import Iterable, Mapping

import pytest

from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.gang import shard_holders
from regroup.service.supervisor.gang.shard_holders import holders_by_node
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.agent_records import ShardHolder, TransferAddress
from regroup.workers.contract.rank_starts import decode_holders, encode_holders

NODES = [f"n{number}" for number in range(4)]


def address(node: str) -> TransferAddress:
    return TransferAddress("h", 1, "t", node)


class Addresses:
    """The addresses of agents, and which of them were requested."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def find(self, nodes: Iterable[str]) -> Mapping[str, TransferAddress]:
        self.requested += sorted(nodes)
        return {node: address(node) for node in self.requested}


def generation(source: RestoreSource, nodes: list[str] = NODES) -> Generation:
    places = [RankPlace(rank, node, node, "h", 0, 0) for rank, node in enumerate(nodes)]
    return Generation(2, Layout(dp_shard=len(nodes)), RankMap.of(places), source, "resized")


async def test_the_holders_of_a_resize_are_encoded_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def count(holders: list[ShardHolder]) -> bytes:
        encoded.append(len(holders))
        return encode_holders(holders)

    monkeypatch.setattr(shard_holders, "encode_holders", count)
    fetch = tuple((rank, node) for rank, node in enumerate([*NODES, "former"]))
    source = RestoreSource(RestoreKind.MEMORY, 5, 1, fetch=fetch, world_size=5)
    found = await holders_by_node(generation(source), Addresses().find)
    assert encoded == [5], "the cost grows with the number of nodes, not with its square"
    everywhere = [ShardHolder(address(node), (rank,)) for rank, node in fetch]
    assert decode_holders(found["n1"], "n1") == [holder for holder in everywhere if holder.address.node_id != "n1"]
    assert decode_holders(found["n3"], "n3") == everywhere[:3] + everywhere[4:]


async def test_a_node_that_has_the_shards_of_its_ranks_gets_no_holders() -> None:
    addresses = Addresses()
    source = RestoreSource(RestoreKind.MEMORY, 5, 1, fetch=((1, "n3"), (1, "n0")))
    found = await holders_by_node(generation(source), addresses.find)
    assert {node: decode_holders(data, node) for node, data in found.items()} == {
        "n1": [ShardHolder(address("n3"), (1,)), ShardHolder(address("n0"), (1,))]
    }
    assert addresses.requested == ["n0", "n3"]


@pytest.mark.parametrize("source", [RestoreSource(RestoreKind.NONE), RestoreSource(RestoreKind.MEMORY, 5, 1)])
async def test_without_fetches_no_address_is_needed(source: RestoreSource) -> None:
    addresses = Addresses()
    assert await holders_by_node(generation(source), addresses.find) == {}
    assert addresses.requested == []


async def test_the_only_node_of_a_job_opens_no_port_for_itself() -> None:
    addresses = Addresses()
    source = RestoreSource(RestoreKind.MEMORY, 5, 1, fetch=((0, "n0"), (1, "n0")), world_size=2)
    assert await holders_by_node(generation(source, ["n0"]), addresses.find) == {"n0": b""}
    assert addresses.requested == []
