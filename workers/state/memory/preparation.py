"""Make the memory of snapshot buffers present in a thread, before the first snapshots are written to them.

Without it, the first copy to each buffer waits for the kernel to clear its pages: at 1.5 GB per second of a core, a
fifth of the rate of later copies.
"""

import threading
from collections.abc import Sequence

from regroup.workers.os import node_facts
from regroup.workers.state.memory.buffer_memory import BufferMemory

_FREE_SHARE = 0.2
"""Share of the host's memory that stays free: for the first step, whose memory is unknown yet, and for mirrors."""


class BufferPreparation:
    """Touches buffers one after the other, in a thread that ends with the process."""

    def __init__(self, buffers: Sequence[BufferMemory], size_bytes: int) -> None:
        """Initialize without a thread.

        Args:
            buffers: memory of the buffers, in the order in which snapshots use them.
            size_bytes: expected size of a snapshot.
        """
        self._buffers, self._size_bytes = buffers, size_bytes
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_short = False
        """True if the host has too little free memory. The remaining buffers get theirs when they are written."""

    def start(self) -> None:
        """Start to touch the buffers."""
        # A daemon: a rank that ends does not wait for memory.
        self._thread = threading.Thread(target=self._run, name="buffer-preparation", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the work after the part that is touched now, and wait for that."""
        self._is_stopped.set()
        self.wait()

    def wait(self) -> None:
        """Wait until all buffers are touched, or the work has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for buffer in self._buffers:
            if not buffer.touch(self._size_bytes, self._may_continue):
                return

    def _may_continue(self) -> bool:
        if self._is_stopped.is_set():
            return False
        facts = node_facts.host_facts()
        self.is_short = facts["free_memory_bytes"] < _FREE_SHARE * facts["memory_bytes"]
        return not self.is_short
