"""Page locks for the memory of snapshot buffers, so that a device can copy to it directly.

A copy to ordinary memory passes through a small buffer of the driver: it is several times slower, and the host waits
for it. `cudaHostRegister` locks pages that exist already (CUDA Runtime API, "Memory Management"). That takes about a
tenth of a second per gigabyte, so a thread does it while training continues. Until then, copies are merely slow.
"""

import queue
import sys
import threading
from dataclasses import dataclass
from typing import Any

import torch

_PORTABLE = 1
"""`cudaHostRegisterPortable`: the lock counts for all contexts."""


class PageLocks:
    """Locks of one process. `request` and `release` return at once; one thread executes them in order."""

    def __init__(self, device: torch.device) -> None:
        """Initialize without a lock. `device` is the CUDA device whose context makes the locks."""
        self._device = device
        self._places: dict[int, tuple[int, int, object]] = {}
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._locked: set[int] = set()
        """Addresses that are locked. Only the thread uses it."""

    def request(self, key: int, address: int, size_bytes: int, memory: object) -> None:
        """Lock memory in the background. Memory that was locked under this key at another place is released first.

        Args:
            key: name of the memory.
            address: its first byte.
            size_bytes: its size.
            memory: an object that keeps it mapped. It is referenced until the lock is released.
        """
        if self._places.get(key, (0, 0))[:2] == (address, size_bytes):
            return
        self.release(key)
        self._places[key] = (address, size_bytes, memory)
        self._send(_Work(True, address, size_bytes))

    def release(self, key: int) -> None:
        """Release the lock of this key, if there is one."""
        if (place := self._places.pop(key, None)) is not None:
            self._send(_Work(False, *place))

    def wait(self) -> None:
        """Wait until all requests are executed."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _send(self, work: "_Work") -> None:
        self._work.put(work)
        if self._thread is None:
            # A daemon: a rank that ends does not wait for locks.
            self._thread = threading.Thread(target=self._run, name="page-locks", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        torch.cuda.set_device(self._device)
        runtime: Any = torch.cuda.cudart()
        while (work := self._work.get()) is not None:
            if not work.is_lock and work.address in self._locked:
                self._locked.discard(work.address)
                runtime.cudaHostUnregister(work.address)
            elif work.is_lock:
                self._lock(runtime, work)

    def _lock(self, runtime: Any, work: "_Work") -> None:
        if (code := int(runtime.cudaHostRegister(work.address, work.size_bytes, _PORTABLE))) == 0:
            self._locked.add(work.address)
        else:
            print(
                f"regroup: CUDA cannot lock {work.size_bytes} bytes of snapshot memory (error {code}): snapshots are "
                "copied more slowly",
                file=sys.stderr, flush=True,
            )  # fmt: skip


@dataclass(frozen=True)
class _Work:
    is_lock: bool
    address: int
    size_bytes: int
    memory: object = None
    """Keeps the memory mapped until its lock is released."""
