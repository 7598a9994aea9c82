"""A rank reads its parts of any set of shards that covers a tensor."""

import itertools
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable
from regroup.workers.state.slices.slice_source import SliceSource
from regroup.workers.state.snapshot import tensor_in
from regroup.workers.state.state_error import StateError
from tests.workers.state_double import fill, saved_state


def shards_of(whole: torch.Tensor, cuts: list[int]) -> dict[int, int]:
    """Cut the tensor along its first dimension and store each part in a shard."""
    edges = [0, *sorted(min(cut, whole.shape[0]) for cut in cuts), whole.shape[0]]
    held: dict[int, int] = {}
    for rank, (start, stop) in enumerate(itertools.pairwise(edges)):
        part = whole[start:stop].contiguous()
        entry = Entry("w", "float32", tuple(whole.shape), (start, 0), tuple(part.shape), part.numel() * 4)
        held[rank] = os.memfd_create("shard")
        buffer = ShardBuffer(os.dup(held[rank]))
        plan = BufferLayout([entry])
        buffer.begin(plan, {"rank": rank}, generation=1, step=1, rank=rank, world_size=len(edges) - 1, layout_hash="x")
        tensor_in(buffer, plan.entries[0]).copy_(part)
        buffer.commit()
        buffer.close()
    return held


def source_of(shards: dict[int, int]) -> SliceSource:
    state = saved_state(shards)

    def receive(table: BoxTable, size_bytes: int) -> memoryview:
        memory = memoryview(bytearray(size_bytes))
        fill(state, {0: table}, {0: memory})
        return memory

    return SliceSource(state.catalog(0, 1), receive)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_a_tensor_is_read_from_whatever_cut(rows: int, cuts: list[int], dtype: str) -> None:
    whole = torch.arange(rows * 3, dtype=torch.float32).view(rows, 3)
    shards = shards_of(whole, cuts)
    target = torch.full((rows, 3), -1.0, dtype=getattr(torch, dtype))
    source = source_of(shards)
    source.read({"w": target})
    assert torch.equal(target.float(), whole), "values are converted to the type of the target"
    assert source.tensors() == {"w": (torch.float32, (rows, 3))} and source.extra(0, 1)["rank"] == 0
    assert source.is_of_layout(len(shards), "x") and not source.is_of_layout(len(shards), "y")
    for fd in shards.values():
        os.close(fd)


def test_what_the_shards_do_not_cover_is_an_error() -> None:
    shards = shards_of(torch.ones(6, 3), [2])
    with pytest.raises(StateError, match="lack 12 of 18 values of 'w'"):
        source_of({0: shards[0]}).read({"w": torch.empty(6, 3)})
