"""Buffers are present before they are written, unless the host is short of memory."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from regroup.workers.os import node_facts
from regroup.workers.state.memory.buffer_memory import BufferMemory
from regroup.workers.state.memory.preparation import BufferPreparation

SIZE = 4 << 20


@pytest.fixture
def buffers() -> Iterator[list[BufferMemory]]:
    created = [BufferMemory(os.memfd_create("memory")) for _ in range(3)]
    yield created
    for buffer in created:
        buffer.close()


def present_bytes(buffers: list[BufferMemory]) -> list[int]:
    return [os.fstat(buffer._fd).st_blocks * 512 for buffer in buffers]


def test_all_buffers_become_present_in_a_thread(buffers: list[BufferMemory]) -> None:
    preparation = BufferPreparation(buffers, SIZE)
    assert present_bytes(buffers) == [0, 0, 0]
    preparation.start()
    preparation.wait()
    assert present_bytes(buffers) == [SIZE] * 3 and not preparation.is_short


def test_a_host_with_little_memory_keeps_it(buffers: list[BufferMemory], monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([300, 100])
    monkeypatch.setattr(node_facts, "host_facts", lambda: {"memory_bytes": 1000, "free_memory_bytes": next(free)})
    preparation = BufferPreparation(buffers, SIZE)
    preparation.start()
    preparation.wait()
    assert present_bytes(buffers) == [SIZE, 0, 0] and preparation.is_short


def test_a_stopped_preparation_starts_no_further_buffer(
    buffers: list[BufferMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, stopped = threading.Event(), threading.Event()
    touch = BufferMemory.touch

    def slow_touch(self: BufferMemory, size_bytes: int, may_continue: Callable[[], bool]) -> bool:
        entered.set()
        assert stopped.wait(30)
        return touch(self, size_bytes, may_continue)

    monkeypatch.setattr(BufferMemory, "touch", slow_touch)
    preparation = BufferPreparation(buffers, SIZE)
    preparation.start()
    assert entered.wait(30)
    preparation._is_stopped.set()
    stopped.set()
    preparation.stop()
    assert present_bytes(buffers) == [0, 0, 0]
