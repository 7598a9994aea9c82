"""Health of a node while a job runs on it: clock, GPU errors, memory and disk.

The monitor runs apart from the reports to the supervisor, so a disk or driver that hangs does not make the node a lost
one.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regroup.workers.agent.health import resource_pressure
from regroup.workers.agent.health.gpu_errors import GpuErrors
from regroup.workers.agent.health.resource_pressure import ResourcePressure
from regroup.workers.os import procfs

POLL_S = 10.0
_MIN_JUMP_S = 1.0
"""Smallest jump of the clock that counts. A daemon that disciplines a clock changes it by less than a thousandth of the
time."""


class NodeMonitor:
    """Polls one node and emits a note of each change."""

    def __init__(
        self,
        node_name: str,
        folders: Sequence[Path],
        list_gpus: Callable[[], Sequence[int]],
        note: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Initialize the monitor.

        Args:
            node_name: name of the node in messages.
            folders: folders whose file systems need free space.
            list_gpus: returns the indexes of the GPUs that the job uses.
            note: emits an event of the job.
        """
        self._node_name, self._folders, self._list_gpus, self._note = node_name, tuple(folders), list_gpus, note
        self._gpu_errors = GpuErrors()
        self._pressure = ResourcePressure()
        self._clock = WallClock()

    async def run(self) -> None:
        """Poll until this task is cancelled: every 10 s, and at once after a GPU error."""
        while True:
            await self._gpu_errors.wait(POLL_S)
            await self._poll()

    def close(self) -> None:
        """Stop receiving GPU errors."""
        self._gpu_errors.close()

    async def _poll(self) -> None:
        node = self._node_name
        if jump_s := self._clock.poll_jump_s():
            message = f"the node's clock was set {'forward' if jump_s > 0 else 'back'} by {abs(jump_s):.0f} s"
            self._note("clock_set", {"node": node, "seconds": jump_s, "message": message})
        gpus = self._list_gpus()
        for error in self._gpu_errors.poll(gpus):
            self._note("xid", {"node": node, "message": error.message})
        with contextlib.suppress(OSError):
            readings = await asyncio.to_thread(resource_pressure.read, self._folders, gpus)
            for what, message in self._pressure.changes(self._gpu_errors.add_to(readings)):
                self._note("condition", {"node": node, "what": what, "message": message})


class WallClock:
    """Detects that the wall clock was set, by comparison with a clock that no process can set.

    Leases and timeouts do not use the wall clock. Times that people read do.
    """

    def __init__(
        self, wall_s: Callable[[], float] = time.time, boot_s: Callable[[], float] = procfs.boottime_s
    ) -> None:
        self._wall_s, self._boot_s = wall_s, boot_s
        self._offset_s = wall_s() - boot_s()

    def poll_jump_s(self) -> float:
        """Return the seconds by which the clock was set since the last poll: negative for back, 0 if it was not set."""
        offset_s = self._wall_s() - self._boot_s()
        change_s, self._offset_s = offset_s - self._offset_s, offset_s
        return change_s if abs(change_s) >= _MIN_JUMP_S else 0.0
