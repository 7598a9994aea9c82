"""Page locks with a double of the CUDA runtime: locked memory, the order of calls, and how long memory stays mapped."""

import gc
import os
import threading
import weakref

import pytest
import torch

from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.page_locks import PageLocks
from regroup.workers.state.shard_buffer import ShardBuffer

CUDA = torch.device("cuda")


class Runtime:
    """A double of the CUDA runtime that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.code = 0
        self.may_run = threading.Event()
        self.may_run.set()
        self.threads: set[int] = set()

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:  # noqa: N802
        self.may_run.wait(10)
        self.threads.add(threading.get_ident())
        self.calls.append(("lock", address))
        assert flags == 1 and size_bytes > 0
        return self.code

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.calls.append(("release", address))
        return 0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    double = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: double)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    return double


@pytest.fixture
def locks(runtime: Runtime) -> PageLocks:
    return PageLocks(CUDA)


class Memory:
    """Anything that keeps memory mapped."""


def test_memory_is_locked_once_and_the_caller_does_not_wait(locks: PageLocks, runtime: Runtime) -> None:
    runtime.may_run.clear()
    for _ in range(3):
        locks.request(1, 4096, 100, Memory())
    locks.request(2, 8192, 100, Memory())
    assert runtime.calls == []
    runtime.may_run.set()
    locks.wait()
    assert runtime.calls == [("lock", 4096), ("lock", 8192)]
    assert threading.get_ident() not in runtime.threads


def test_memory_that_moved_is_released_before_the_new_place_is_locked(locks: PageLocks, runtime: Runtime) -> None:
    first = Memory()
    seen = weakref.ref(first)
    locks.request(1, 4096, 100, first)
    locks.wait()
    del first
    gc.collect()
    assert seen() is not None, "the old memory stays mapped while it is locked"
    locks.request(1, 8192, 200, Memory())
    locks.wait()
    assert runtime.calls == [("lock", 4096), ("release", 4096), ("lock", 8192)]
    gc.collect()
    assert seen() is None


def test_a_refused_lock_is_reported_and_never_released(
    locks: PageLocks, runtime: Runtime, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime.code = 2
    locks.request(1, 4096, 100, Memory())
    locks.release(1)
    locks.wait()
    assert runtime.calls == [("lock", 4096)]
    printed = capfd.readouterr().err
    assert "100 bytes" in printed and "error 2" in printed


def test_the_place_of_a_buffer_is_that_of_its_mapping() -> None:
    buffer = ShardBuffer(os.memfd_create("shard"))
    plan = BufferLayout([Entry("w", "float32", (4,), (0,), (4,), 16)])
    buffer.begin(plan, {}, generation=1, step=1, rank=0, world_size=1, layout_hash="x")
    address, size_bytes = buffer.memory_place()
    assert address % os.sysconf("SC_PAGE_SIZE") == 0 and size_bytes >= 4096
    view = torch.frombuffer(buffer.view(plan.entries[0]), dtype=torch.float32)
    assert address < view.data_ptr() < address + size_bytes
    del view
    buffer.close()
