"""Copies of tensors to snapshot buffers, and back."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regroup.workers.state import shard_buffer
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.memory.checksum import checksum
from regroup.workers.state.page_locks import PageLocks
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import Copier, ShardSource, tensor_in
from regroup.workers.state.state_error import StateError


def test_a_layout_is_rebuilt_only_when_names_shapes_or_types_change() -> None:
    copier, tensors = Copier(torch.device("cpu")), {"w": torch.ones(2, 3)}
    assert list(copier.plan({}).entries) == []
    first = copier.plan(tensors)
    assert copier.plan({"w": torch.zeros(2, 3)}) is first
    for others in ({"v": torch.ones(2, 3)}, {"w": torch.ones(3, 2)}, {"w": torch.ones(2, 3, dtype=torch.float64)}):
        assert copier.plan(others) is not first
        assert copier.last_plan is copier.plan(others)


def test_a_copy_on_the_cpu_computes_the_checksums_that_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {
        "whole": torch.randn(300, 700),
        "transposed": torch.randn(50, 40).t(),
        "empty": torch.empty(0, 3),
        "odd": torch.arange(7, dtype=torch.uint8),
        "number": torch.tensor(3.5),
    }
    copier, buffer = Copier(torch.device("cpu"), threads=2), ShardBuffer(os.memfd_create("shard"))
    plan = copier.plan(tensors)
    for step in (1, 2):
        tensors["whole"].add_(1)
        buffer.begin(plan, {}, generation=1, step=step, rank=0, world_size=1, layout_hash="x")
        copier.copy(buffer, plan, tensors)
        copier.finish()
        with monkeypatch.context() as patch:
            patch.setattr(shard_buffer, "checksum", _of_index_only(buffer))
            buffer.commit(regions=copier.regions)
        assert buffer.verify()
        for entry, tensor in zip(plan.entries, tensors.values(), strict=True):
            assert torch.equal(tensor_in(buffer, entry), tensor)
    buffer.view(plan.entries[0])[5] ^= 1
    assert not buffer.verify()
    buffer.close()


def _of_index_only(buffer: ShardBuffer) -> Callable[..., int]:
    """Return the checksum, which fails the test if it reads data."""

    def of(data: memoryview, threads: int) -> int:
        assert len(data) <= buffer.header().index_bytes, "the data was read a second time"
        return checksum(data, threads)

    return of


def test_a_rank_reads_its_own_shard_and_no_other_part() -> None:
    plan = BufferLayout([Entry("w", "float32", (6, 3), (2, 0), (2, 3), 24)])
    buffer = ShardBuffer(os.memfd_create("shard"))
    buffer.begin(plan, {"step": 1, "random": 5}, generation=1, step=1, rank=1, world_size=3, layout_hash="x")
    tensor_in(buffer, plan.entries[0]).copy_(torch.ones(2, 3))
    buffer.commit()
    source = ShardSource(buffer)
    assert source.tensors() == {"w": (torch.float32, (6, 3))}
    assert source.extra(1, 3) == {"step": 1, "random": 5} and source.extra(0, 3) == source.extra(1, 2) == {"step": 1}
    assert source.is_of_layout(3, "x") and not source.is_of_layout(3, "y")
    with pytest.raises(StateError, match=r"values from \(2, 0\) of shape \(2, 3\) of 'w'"):
        source.read({"w": torch.empty(6, 3)})
    buffer.close()


class Stream:
    """A double of a stream: it records what was requested of it."""

    def __init__(self, device: torch.device) -> None:
        self.requests: list[Any] = []

    def wait_stream(self, other: str) -> None:
        self.requests.append(f"wait for {other}")

    def synchronize(self) -> None:
        self.requests.append("synchronize")


def test_on_a_device_the_copy_follows_the_update_and_is_awaited_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    locked: list[tuple[int, int]] = []
    monkeypatch.setattr(PageLocks, "request", lambda _, key, address, size, memory: locked.append((address, size)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream of the update")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext(stream.requests.append("copy")))
    copier, tensors = Copier(torch.device("cuda")), {"w": torch.ones(2, 3)}
    plan = copier.plan(tensors)
    buffer = ShardBuffer(os.memfd_create("shard"))
    buffer.begin(plan, {}, generation=1, step=1, rank=0, world_size=1, layout_hash="x")
    copier.copy(buffer, plan, tensors)
    assert isinstance(copier._stream, Stream) and copier.is_async
    assert copier._stream.requests == ["wait for the stream of the update", "copy"]
    assert copier._sources, "the tensors stay alive while they are copied"
    copier.finish()
    assert copier._stream.requests[2:] == ["synchronize"] and not copier._sources
    assert torch.equal(tensor_in(buffer, plan.entries[0]), tensors["w"])
    copier.copy(buffer, plan, tensors)
    assert locked == [buffer.memory_place()], "once, and not before the first copy"
    buffer.close()
