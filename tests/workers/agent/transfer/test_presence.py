"""Memory is present after `prefault`, so its first use causes no page fault."""

import contextlib
import mmap
import os
import resource
from collections.abc import Callable, Iterator

import pytest

from regroup.workers.agent.transfer.presence import prefault

PAGE = mmap.PAGESIZE
PAGES = 4096


Mapped = Callable[[bool], memoryview]


@pytest.fixture
def mapped() -> Iterator[Mapped]:
    """Return new mappings of memory files whose memory is allocated, with or without content."""
    with contextlib.ExitStack() as stack:

        def new(has_content: bool) -> memoryview:
            fd = os.memfd_create("memory")
            stack.callback(os.close, fd)
            os.posix_fallocate(fd, 0, PAGES * PAGE)
            if has_content:
                os.pwrite(fd, bytes(PAGES * PAGE), 0)
            return stack.enter_context(memoryview(stack.enter_context(mmap.mmap(fd, PAGES * PAGE))))

        yield new


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def write_all(view: memoryview) -> int:
    """Write to every page and return the number of page faults."""
    before = faults()
    for at in range(0, len(view), PAGE):
        view[at] = 1
    return faults() - before


def read_all(view: memoryview) -> int:
    before = faults()
    for at in range(0, len(view), PAGE):
        assert view[at] == 0
    return faults() - before


def test_without_it_the_first_use_of_memory_is_interrupted(mapped: Mapped) -> None:
    assert write_all(mapped(False)) > PAGES // 2
    assert read_all(mapped(True)) > PAGES // 20


@pytest.mark.parametrize("has_content", [False, True])
def test_memory_is_present_for_writes(mapped: Mapped, has_content: bool) -> None:
    view = mapped(has_content)
    prefault(view, is_written=True)
    assert write_all(view) < 20


@pytest.mark.parametrize("is_read_only", [False, True])
def test_content_is_present_for_reads(mapped: Mapped, is_read_only: bool) -> None:
    memory = mapped(True)
    with memory.toreadonly() if is_read_only else memory[:] as view:
        prefault(view)
        assert read_all(view) < 20


def test_a_read_of_content_makes_it_present_for_writes_too(mapped: Mapped) -> None:
    view = mapped(True)
    prefault(view)
    assert write_all(view) < 20


def test_a_part_that_begins_and_ends_within_pages_is_present_as_a_whole(mapped: Mapped) -> None:
    with mapped(False)[PAGE + 5 : -PAGE - 7] as part:
        prefault(part, is_written=True)
        assert write_all(part) < 20
        part[-1] = 1


def test_no_bytes_need_no_memory() -> None:
    prefault(memoryview(bytearray()), is_written=True)
