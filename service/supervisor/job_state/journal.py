"""A supervisor's events: written ahead to records, handed to the controller, kept until the database has them.

Agents retain their reports (step rows) until they are acknowledged. The supervisor writes its own decisions to
create-only records before it emits them. A restarted supervisor replays its records. The database ignores keys that it
already has, so no event is lost or duplicated.
"""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from regroup.service.domain.job_events import EventType, JobEvent, encode, type_of
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.generations import Records

_BATCH = 2000
"""Most events of one reply."""
_OF_STEPS = frozenset({EventType.STEP.value, EventType.REPORT.value})


class Journal:
    """Numbers the events of one incarnation of a supervisor."""

    def __init__(
        self,
        records: Records,
        job_id: str,
        clock: Callable[[], float] = time.time,
        on_event: Callable[[SupervisorEvent], None] = lambda _: None,
    ) -> None:
        """Initialize an empty journal. `on_event` receives each emitted event, but none of earlier incarnations."""
        self.boot_id = uuid.uuid4().hex
        self._on_event = on_event
        self._records, self._prefix, self._clock = records, f"event/{job_id}/", clock
        self._events: list[SupervisorEvent] = []
        self._next = 0
        self._acked = 0
        self._urgent_seq = 0
        """Number of the newest event that does not wait for others."""
        self._is_closed = False
        self._more = asyncio.Event()

    async def replay(self) -> list[SupervisorEvent]:
        """Restore and return the events of earlier incarnations of this supervisor, oldest first."""
        found = [json.loads(value) for value in (await self._records.read(self._prefix)).values()]
        for item in sorted(found, key=lambda item: item["time_s"]):
            self._add(item["key"], item["type"], item["generation"], item["time_s"], item["data"])
        return list(self._events)

    async def record(self, key: str, event: JobEvent, generation: int) -> None:
        """Write an event to a create-only record, then emit it. Do nothing if the key exists."""
        time_s, kind, data = self._clock(), type_of(event).value, encode(event)
        item = {"key": key, "type": kind, "generation": generation, "time_s": time_s, "data": data}
        if await self._records.create(f"{self._prefix}{key}", json.dumps(item).encode()):
            self._on_event(self._add(key, kind, generation, time_s, data))

    def emit(self, key: str, event: JobEvent, generation: int, time_s: float) -> None:
        """Emit an event that its sender keeps until it is durable."""
        self._on_event(self._add(key, type_of(event).value, generation, time_s, encode(event)))

    async def since(self, boot_id: str, acked: int, wait_s: float, gather_s: float = 0.0) -> list[SupervisorEvent]:
        """Return the events that the controller has not acknowledged.

        Args:
            boot_id: the incarnation of a supervisor in which `acked` counts.
            acked: number of the newest acknowledged event.
            wait_s: longest wait for the first event.
            gather_s: longest wait for more events while there are only steps and newer mirrors.
        """
        if boot_id == self.boot_id:
            self._acked = max(self._acked, acked)
            self._events = [event for event in self._events if event.seq > acked]
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        until_s, gathered_s = now_s + wait_s, now_s + min(gather_s, wait_s)
        while (left_s := (gathered_s if self._events else until_s) - loop.time()) > 0 and not self._is_due():
            self._more.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), left_s)
        return self._events[:_BATCH]

    def close(self) -> None:
        """Wake the waiting callers, because another journal replaces this one."""
        self._is_closed = True
        self._more.set()

    def _is_due(self) -> bool:
        """Return whether the controller must get the events at once."""
        if self._is_closed or len(self._events) >= _BATCH:
            return True
        return bool(self._events) and self._events[0].seq <= self._urgent_seq

    @property
    def last_seq(self) -> int:
        """Number of the newest event."""
        return self._next

    @property
    def acked_seq(self) -> int:
        """Number of the newest event that the database has."""
        return self._acked

    def _add(self, key: str, kind: str, generation: int, time_s: float, data: Mapping[str, Any]) -> SupervisorEvent:
        self._next += 1
        event = SupervisorEvent(self._next, key, kind, generation, time_s, data)
        self._events.append(event)
        if kind not in _OF_STEPS and not _is_newer_mirror(kind, data):
            self._urgent_seq = event.seq
        self._more.set()
        return event


def _is_newer_mirror(kind: str, data: Mapping[str, Any]) -> bool:
    """Return whether an event only reports that other nodes hold a newer set, as they do every few seconds."""
    return kind == EventType.MIRROR and data["step"] is not None and not data["why"]


class Intake:
    """Messages of agents. Each is processed once, and is durable when the events that it caused are acknowledged."""

    def __init__(self, supervisor_boot_id: str) -> None:
        """Initialize the intake of the supervisor incarnation that `supervisor_boot_id` names."""
        self.supervisor_boot_id = supervisor_boot_id
        self._received: dict[str, int] = {}
        self._pending: dict[str, list[tuple[int, int]]] = {}

    def filter_new(
        self, boot_id: str, follows: str, messages: tuple[tuple[int, dict[str, Any]], ...]
    ) -> list[dict[str, Any]]:
        """Return the new messages in order.

        Return none if they follow messages that another incarnation received. Those may not be durable. The agent sends
        them again, followed by these, once it receives the new boot id.
        """
        if follows not in ("", self.supervisor_boot_id):
            return []
        taken = self._received.get(boot_id, 0)
        new = [(number, message) for number, message in messages if number > taken]
        if new:
            self._received[boot_id] = new[-1][0]
        return [message for _, message in new]

    def record_caused(self, boot_id: str, last_seq: int) -> None:
        """Record that events up to `last_seq` contain all messages received from that agent so far."""
        self._pending.setdefault(boot_id, []).append((self._received.get(boot_id, 0), last_seq))

    def received(self, boot_id: str) -> int:
        """Return the number of the last message received."""
        return self._received.get(boot_id, 0)

    def durable(self, boot_id: str, acked_seq: int) -> int:
        """Return the number of the last message whose events the database has."""
        pending = self._pending.get(boot_id, [])
        done = [number for number, seq in pending if seq <= acked_seq]
        if done:
            self._pending[boot_id] = [item for item in pending if item[1] > acked_seq] or [(done[-1], 0)]
        return max(done, default=0)
