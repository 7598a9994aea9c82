"""Division of large memory among threads."""

import threading
from itertools import pairwise

import pytest

from regroup.workers.state.memory import copy_threads
from regroup.workers.state.memory.copy_threads import LEAST_PART_BYTES, MOST_THREADS, run_parts, split, thread_count


@pytest.mark.parametrize("size", [0, 1, 4095, LEAST_PART_BYTES, 5 * LEAST_PART_BYTES + 77])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_parts_cover_all_bytes_once_and_begin_at_units(size: int, threads: int) -> None:
    parts = split(size, 4096, threads)
    assert parts[0][0] == 0 and parts[-1][1] == size
    assert all(end == start for (_, end), (start, _) in pairwise(parts))
    assert all(first % 4096 == 0 for first, _ in parts)
    assert len(parts) == max(1, min(threads, size // LEAST_PART_BYTES)), "no thread for a small part"


def test_results_come_in_order_from_several_threads() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def work(first: int, last: int) -> tuple[int, int]:
        meeting.wait()  # ends only if three threads work at the same time
        return first, last

    parts = [(0, 1), (1, 2), (2, 3)]
    assert run_parts(parts, work) == parts


def test_an_error_in_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_parts([(0, 1), (1, 0)], lambda first, last: first // last)


def test_processes_that_copy_together_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_threads.os, "sched_getaffinity", lambda _: set(range(12)))
    assert [thread_count(sharing) for sharing in (1, 4, 12, 64)] == [MOST_THREADS, 3, 1, 1]
