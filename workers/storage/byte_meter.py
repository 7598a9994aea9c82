"""Bytes that the threads of an agent move to or from durable storage: how many, of how many, and how fast."""

import threading
import time
from collections import deque
from collections.abc import Callable

from regroup.workers.contract.storage_progress import StorageProgress

_WINDOW_S = 5.0
"""Time over which the present rate is measured."""


class ByteMeter:
    """Counts bytes. All methods may be called in any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Initialize without an expected number of bytes."""
        self._clock, self._lock = clock, threading.Lock()
        self._done_bytes = 0
        self._total_bytes: int | None = None
        self._began_s = clock()
        self._ended_s: float | None = None
        self._samples = deque([(self._began_s, 0)])
        """Pairs of a time and the number of bytes then, from the begin of the window on."""

    def expect(self, nbytes: int) -> None:
        """Expect this many bytes from now on."""
        with self._lock:
            self._total_bytes, self._began_s = nbytes, self._clock()
            self._samples = deque([(self._began_s, self._done_bytes)])
            self._note_end()

    def count(self, nbytes: int) -> None:
        """Count bytes that were moved. A negative number cancels bytes that must be moved once more."""
        with self._lock:
            self._done_bytes += nbytes
            self._note_end()

    def progress(self) -> StorageProgress | None:
        """Return the progress; None before the total is known. Call it about once per second."""
        with self._lock:
            if self._total_bytes is None:
                return None
            if self._ended_s is not None:
                duration_s = max(1e-3, self._ended_s - self._began_s)
                return StorageProgress(self._total_bytes, self._total_bytes, self._total_bytes / duration_s)
            now_s = self._clock()
            self._samples.append((now_s, self._done_bytes))
            while len(self._samples) > 2 and self._samples[1][0] <= now_s - _WINDOW_S:
                self._samples.popleft()
            first_s, before = self._samples[0]
            rate = max(0, self._done_bytes - before) / max(1e-3, now_s - first_s)
            return StorageProgress(self._done_bytes, self._total_bytes, rate)

    def _note_end(self) -> None:
        if self._total_bytes is None or self._done_bytes < self._total_bytes:
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = self._clock()
