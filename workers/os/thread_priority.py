"""Priority of threads."""

import os
import threading


def lower_priority(nice: int) -> None:
    """Give the calling thread at least this niceness.

    Linux keeps a niceness per thread (`man 2 setpriority`, "C library/kernel differences"). A thread that is nicer
    already, as those of Ray workers are, stays as it is: an ordinary user may not raise a priority.
    """
    thread = threading.get_native_id()
    if os.getpriority(os.PRIO_PROCESS, thread) < nice:
        os.setpriority(os.PRIO_PROCESS, thread, nice)
