"""Only the calling thread gets another priority, and never a higher one."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from regroup.workers.os.thread_priority import lower_priority


def own_niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_is_never_less_nice_than_before() -> None:
    # An ordinary user would be refused: Ray workers have niceness 15, and threads that write checkpoints want 10.
    def lower_twice() -> list[int]:
        start = own_niceness()
        lower_priority(start + 2)
        first = own_niceness()
        lower_priority(start + 1)
        return [start, first, own_niceness()]

    before = own_niceness()
    with ThreadPoolExecutor(1) as pool:
        start, first, second = pool.submit(lower_twice).result()
    assert (first, second) == (start + 2, start + 2)
    assert own_niceness() == before
