"""On a device, a snapshot is committed in the background, once its copy is complete."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from regroup.workers.rank.snapshots import SnapshotCopy, Snapshots
from regroup.workers.state.page_locks import PageLocks
from regroup.workers.state.shard_buffer import BufferState, Pin, ShardBuffer
from regroup.workers.state.training_state import TrainingState

PLACE = {"generation": 1, "rank": 0, "world_size": 1}


class Stream:
    """A double of a stream. The test sets when its copies are complete."""

    is_complete = threading.Event()
    error: Exception | None = None

    def __init__(self, device: torch.device) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        pass

    def synchronize(self) -> None:
        assert self.is_complete.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> type[Stream]:
    monkeypatch.setattr(Stream, "is_complete", threading.Event())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(PageLocks, "request", lambda *request, memory: None)
    return Stream


@pytest.fixture
def buffers() -> Iterator[list[ShardBuffer]]:
    created = [ShardBuffer(os.memfd_create("shard")) for _ in range(2)]
    yield created
    for buffer in created:
        buffer.close()


def state_of(model: torch.nn.Module) -> TrainingState:
    return TrainingState({"model": model}, torch.device("cpu"))


def test_a_commit_waits_for_the_copy_and_training_does_not(stream: type[Stream], buffers: list[ShardBuffer]) -> None:
    snapshots = Snapshots(torch.device("cuda"))
    snapshots.use(buffers, -1)
    snapshots.start_copy(state_of(torch.nn.Linear(3, 2)), 7, PLACE, "x", Pin.MIRROR)
    (written,) = [buffer for buffer in buffers if buffer.header().state is not BufferState.EMPTY]
    assert written.header().state is BufferState.WRITING and snapshots.is_copying
    stream.is_complete.set()
    number = buffers.index(written)
    assert snapshots.finish_copy() == SnapshotCopy(number, 7, Pin.MIRROR)
    assert written.verify() and (written.header().step, written.header().pinned) == (7, Pin.MIRROR)
    assert snapshots.newest() is written and not snapshots.is_copying
    assert snapshots.finish_copy() is None


def test_training_learns_of_a_device_that_fails_during_the_copy(
    stream: type[Stream], buffers: list[ShardBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "error", RuntimeError("CUDA error: an illegal memory access was encountered"))
    stream.is_complete.set()
    snapshots = Snapshots(torch.device("cuda"))
    snapshots.use(buffers, -1)
    snapshots.start_copy(state_of(torch.nn.Linear(3, 2)), 1, PLACE, "x", Pin.NONE)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        snapshots.finish_copy()
    assert BufferState.COMPLETE not in [buffer.header().state for buffer in buffers]
    assert snapshots.newest() is None


def test_on_the_cpu_the_copy_is_complete_at_once_and_no_thread_is_started(buffers: list[ShardBuffer]) -> None:
    snapshots, threads = Snapshots(torch.device("cpu")), threading.active_count()
    snapshots.use(buffers, -1)
    snapshots.start_copy(state_of(torch.nn.Linear(3, 2)), 1, PLACE, "x", Pin.NONE)
    assert threading.active_count() == threads
    snapshots.finish_copy()
    newest = snapshots.newest()
    assert newest is not None and newest.verify()


def test_the_memory_of_the_next_snapshots_is_prepared(buffers: list[ShardBuffer]) -> None:
    snapshots = Snapshots(torch.device("cpu"))
    snapshots.use(buffers, -1)
    snapshots.prepare_memory(1 << 20, 2)
    until = time.monotonic() + 30
    while min(buffer.memory.file_bytes() for buffer in buffers) < 1 << 20:
        assert time.monotonic() < until, "a thread prepares both buffers"
        time.sleep(0.01)
    assert not snapshots.has_own
    snapshots.start_copy(state_of(torch.nn.Linear(3, 2)), 7, PLACE, "x", Pin.NONE)
    assert snapshots.finish_copy() is not None and snapshots.has_own
