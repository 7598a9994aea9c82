"""GPU errors of this node: received at once, and retained while the device is faulty."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from regroup.workers.agent.health.resource_pressure import Readings
from regroup.workers.agent.health.xid import Xid, XidMonitor
from regroup.workers.os.nvml_events import LOST

_WAIT_S = 1.0


class GpuErrors:
    """Receives the errors of GPUs. The driver is not opened before a job has GPUs on this node."""

    def __init__(self, listen: Callable[[Sequence[int]], XidMonitor | None] = XidMonitor.open) -> None:
        self._listen = listen
        self._gpus: tuple[int, ...] = ()
        self._receiver: asyncio.Task[None] | None = None
        self._new: list[Xid] = []
        self._device_errors: dict[int, str] = {}
        self._arrived = asyncio.Event()

    async def wait(self, at_most_s: float) -> None:
        """Wait for an error, at most this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._arrived.wait()
        self._arrived.clear()

    def poll(self, gpus: Sequence[int]) -> list[Xid]:
        """Return the errors since the last poll. The first call with GPUs starts to receive their errors."""
        if gpus and self._receiver is None:
            self._gpus = tuple(sorted(gpus))
            self._receiver = asyncio.get_running_loop().create_task(self._receive())
        new, self._new = self._new, []
        return new

    def add_to(self, readings: Readings) -> Readings:
        """Return the readings of the node with the faulty devices added."""
        return replace(readings, broken_gpus=(*readings.broken_gpus, *self._device_errors.values()))

    def close(self) -> None:
        """Stop receiving. The driver's handles end with this process, because a thread may still wait in the driver."""
        if self._receiver is not None:
            self._receiver.cancel()

    async def _receive(self) -> None:
        if (monitor := await asyncio.to_thread(self._listen, self._gpus)) is None:
            return
        while True:
            if (error := await asyncio.to_thread(monitor.wait, _WAIT_S)) is None:
                continue
            self._new.append(error)
            if error.is_device_fault:
                self._device_errors.setdefault(error.gpu, error.message)
            self._arrived.set()
            if error.number == LOST:  # the driver repeats this error without end
                monitor.close()
                return
