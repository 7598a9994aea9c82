"""The errors of this node's GPUs as its agent takes them in: heard at once, and kept while a device is no good."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from regroup.workers.agent.health.resource_pressure import Readings
from regroup.workers.agent.health.xid import Xid, XidMonitor

_WAIT_S = 1.0


class GpuErrors:
    """Nothing is opened before a job has GPUs here."""

    def __init__(self, listen: Callable[[Sequence[int]], XidMonitor | None] = XidMonitor.open) -> None:
        self._listen = listen
        self._gpus: tuple[int, ...] = ()
        self._listening: asyncio.Task[None] | None = None
        self._fresh: list[Xid] = []
        self._of_devices: dict[int, str] = {}
        self._came = asyncio.Event()

    async def pause(self, at_most_s: float) -> None:
        """Until an error has come, or that time has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._came.wait()
        self._came.clear()

    def heard(self, gpus: Sequence[int]) -> list[Xid]:
        """Errors since the last time; from now on those of `gpus` are listened to."""
        if gpus and self._listening is None:
            self._gpus = tuple(sorted(gpus))
            self._listening = asyncio.get_running_loop().create_task(self._hear())
        fresh, self._fresh = self._fresh, []
        return fresh

    def added_to(self, seen: Readings) -> Readings:
        """A look at the node, with the devices that are no good any more."""
        return replace(seen, broken_gpus=(*seen.broken_gpus, *self._of_devices.values()))

    def close(self) -> None:
        """Hear nothing more. What the driver gave for it goes with this process: a thread may still wait in it."""
        if self._listening is not None:
            self._listening.cancel()

    async def _hear(self) -> None:
        if (watch := await asyncio.to_thread(self._listen, self._gpus)) is None:
            return
        while True:
            if (error := await asyncio.to_thread(watch.wait, _WAIT_S)) is None:
                continue
            self._fresh.append(error)
            if error.is_of_the_device:
                self._of_devices.setdefault(error.gpu, error.message)
            self._came.set()
            if error.number == 0:  # the driver says so again and again
                watch.close()
                return
