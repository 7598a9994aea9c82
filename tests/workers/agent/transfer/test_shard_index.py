"""Descriptions of shards."""

import os
import zlib

import pytest

from regroup.workers.agent.transfer import shard_index
from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from tests.workers.agent.transfer.held_shards import KEY, PLAN, new_shard


def test_a_description_has_everything_that_a_plan_needs() -> None:
    fd = new_shard()
    described = shard_index.describe(fd, KEY)
    back = shard_index.unpack(shard_index.pack([described]))[1]
    assert back == described
    assert back.parsed().tensors == PLAN.entries and back.parsed().extra == {"seed": 7}
    assert (back.world_size, back.layout_hash, back.data_bytes) == (2, "0123456789abcdef", PLAN.data_bytes)


def test_a_shard_of_another_set_is_not_described() -> None:
    with pytest.raises(TransferError, match="no shard of rank 1, generation 3, step 6 here"):
        shard_index.describe(new_shard(), ShardKey(1, 3, 6))
    with pytest.raises(TransferError):
        shard_index.describe(os.memfd_create("empty"), KEY)


@pytest.mark.parametrize(
    "data", [b"", b"x", zlib.compress(b""), zlib.compress(b"[1]\n"), zlib.compress(b'[{"a": 1}]\n')]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # the messages of several libraries
        shard_index.unpack(data)


def test_an_answer_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "_MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        shard_index.unpack(zlib.compress(bytes(100_000)))
