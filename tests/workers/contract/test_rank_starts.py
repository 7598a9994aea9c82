"""The starts of a node's ranks: a common `Join`, and what differs."""

from dataclasses import replace

import pytest

from regroup.workers.contract.agent_records import ShardHolder, TransferAddress
from regroup.workers.contract.messages import ContractError, Join, Restore, Stop, encode
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.rank_starts import RankStarts, decode_holders, encode_holders, joins_of

COMMON = Join("j", 3, 0, 16, 0, 0, 0, 4, {"dp_shard": 16}, "cuda", "h", 1, Restore("none"), "m:f", RankConfig(seed=3))


def test_each_rank_gets_the_common_part_and_its_own() -> None:
    starts = RankStarts(2, "gpu-2", (8, 11), (0, 1), (4, 5), {"train": "/data"})
    here = {"local_world_size": 2, "node_rank": 2, "node_name": "gpu-2", "node_devices": (4, 5)}
    expected = [
        replace(COMMON, rank=rank, local_rank=local_rank, dataset={"train": "/data"}, **here)
        for rank, local_rank in ((8, 0), (11, 1))
    ]
    assert joins_of(encode(COMMON), starts) == expected


def test_another_message_is_refused() -> None:
    with pytest.raises(ContractError, match="expected a Join, got a Stop"):
        joins_of(encode(Stop("why")), RankStarts(0, "n", (0,), (0,), (0,)))


def test_a_node_gets_the_holders_other_than_itself() -> None:
    holders = [ShardHolder(TransferAddress(node, 1, "t", node), (number, 8)) for number, node in enumerate("abc")]
    assert decode_holders(encode_holders(holders), "b") == [holders[0], holders[2]]
    assert decode_holders(encode_holders(holders), "d") == holders
    assert encode_holders([]) == b"" and decode_holders(b"", "a") == []


def test_holders_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ContractError, match="holders of the state cannot be read"):
        decode_holders(b"text", "a")
