"""Memory that is mapped once, present when it is needed, and returned when it is not."""

import os
import resource
from collections.abc import Iterator

import pytest

from regroup.workers.state.memory.buffer_memory import BufferMemory

MIB = 1 << 20


@pytest.fixture
def memory() -> Iterator[BufferMemory]:
    created = BufferMemory(os.memfd_create("memory"))
    yield created
    created.close()


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def write_all(memory: BufferMemory) -> int:
    """Write to every page and return the number of page faults."""
    mapped = memory.mapped()
    before = faults()
    for at in range(0, len(mapped), 4096):
        mapped[at] = 1
    return faults() - before


def test_touched_memory_needs_no_page_fault(memory: BufferMemory) -> None:
    assert memory.touch(32 * MIB)
    assert memory.file_bytes() == 32 * MIB
    assert write_all(memory) < 50, "8,192 pages are present"


def test_memory_stays_mapped_while_the_file_does_not_grow(memory: BufferMemory) -> None:
    assert memory.touch(32 * MIB)
    place = memory.place()
    assert memory.allocate(31 * MIB) is memory.mapped() and memory.place() == place
    assert write_all(memory) < 50


def test_memory_that_the_state_does_not_need_is_returned(memory: BufferMemory) -> None:
    assert memory.touch(32 * MIB)
    address, _ = memory.place()
    memory.allocate(16 * MIB)
    assert memory.place() == (address, 16 * MIB), "only this much is allocated"
    memory.mapped()[16 * MIB - 1] = 1


def test_the_work_ends_when_it_must_not_continue(memory: BufferMemory) -> None:
    answers = iter([True, False])
    assert not memory.touch(64 * MIB, lambda: next(answers))
    assert memory.place()[1] == 16 * MIB, "only the first part is present"
    assert write_all(memory) > 0, "the rest is allocated on a write"
    assert memory.place()[1] == 64 * MIB


def test_an_empty_file_can_be_mapped_and_grows(memory: BufferMemory) -> None:
    assert len(memory.mapped()) == 1 and memory.file_bytes() == 0
    assert len(memory.allocate(4096)) == 4096
    assert memory.place()[1] == 4096


def test_the_host_refuses_memory_with_an_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    memory = BufferMemory(os.memfd_create("memory"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(OSError):
            memory.allocate(2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        memory.close()
