"""Descriptions of shards."""

import contextlib
import json
import os
import zlib

import pytest

from regroup.workers.agent.transfer import shard_index
from regroup.workers.agent.transfer.shard_index import ShardDescription
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box, Region
from tests.workers.agent.transfer.held_shards import KEY, PLAN, new_shard


def test_a_description_has_everything_that_a_plan_needs() -> None:
    fd = new_shard()
    described = shard_index.describe(os.dup(fd), KEY)
    back = shard_index.unpack(shard_index.pack([described]))[1]
    assert back == described and (back.world_size, back.layout_hash) == (2, "0123456789abcdef")
    with contextlib.closing(ShardBuffer(fd)) as buffer:
        data = bytes(buffer.memory.mapped())
        rows = {name: (box, start) for name, box, start in back.table.rows()}
        for entry in PLAN.entries:
            box, start = rows[entry.name]
            assert box == TensorBox(entry.dtype, box.item_bytes, entry.global_shape, Box(entry.offset, entry.shape))
            assert box.size_bytes == entry.nbytes
            assert data[start : start + box.size_bytes] == bytes(buffer.view(entry))
    assert json.loads(data[back.facts.offset : back.facts.end]) == {"seed": 7}


def test_what_ranks_have_in_common_travels_once() -> None:
    names = [f"layers.{number}.weight" for number in range(2000)]

    def described(rank: int) -> ShardDescription:
        box = TensorBox("float32", 4, (1024, 64), Box((rank, 0), (1, 64)))
        table = BoxTable.of((name, box, 256 * number) for number, name in enumerate(names))
        return ShardDescription(rank, 1024, "0123456789abcdef", table, Region(4096, 100))

    shards = [described(rank) for rank in range(64)]
    data = shard_index.pack(shards)
    assert len(data) < 1.2 * len(shard_index.pack(shards[:1])) + 64 * 40
    assert shard_index.unpack(data) == {shard.rank: shard for shard in shards}


def test_a_shard_of_another_set_is_not_described() -> None:
    with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6 here"):
        shard_index.describe(new_shard(), ShardKey(1, 3, 6))
    with pytest.raises(TransferError):
        shard_index.describe(os.memfd_create("empty"), KEY)


@pytest.mark.parametrize(
    "data", [b"", b"x", zlib.compress(b""), zlib.compress(b"[1]"), zlib.compress(b'{"names": []}')]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # the messages of several libraries
        shard_index.unpack(data)


def test_an_answer_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "_MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        shard_index.unpack(zlib.compress(bytes(100_000)))
