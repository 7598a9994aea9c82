"""A job's mirrors: agents store copies of each other's snapshots, so a lost node costs the steps since the last set.

Sets are sent one after the other and do not block training. The leading rank receives a request, and all ranks retain
the next set. Each agent sends its part to its pair. When all have it, they retain that set and release the one before.
"""

import asyncio
import time
from collections.abc import Mapping

from regroup.service.domain.job_events import MirrorChanged, NoteRecorded
from regroup.service.policy.recovery.mirror_memory import (
    MirrorAllowance,
    MirrorLevel,
    lower_allowance,
    update_allowance,
)
from regroup.service.policy.recovery.mirror_pairs import pause_s
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.calls import gather_all
from regroup.service.supervisor.gang.gang import CALL_TIMEOUT_S, Gang
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.agent_records import AgentErrorKind

MIRROR_TIMEOUT_S = 3600.0
_UNKNOWN = -1
_NO_SET = (0, 0)


class Mirrors:
    """Sends sets while a job trains. A restarted supervisor asks the agents for the state."""

    def __init__(
        self, pairs: Mapping[str, str], share: float, bytes_per_s: float | None, gang: Gang, journal: Journal
    ) -> None:
        """Initialize the mirrors. `pairs` maps a node to the node that stores its mirror; empty disables mirrors."""
        self.step: int | None = None
        """Committed steps in the set that all mirrors store, as far as this incarnation knows."""
        self._pairs, self._share, self._bytes_per_s = pairs, share, bytes_per_s
        self._gang, self._calls, self._journal = gang, _MirrorCalls(gang), journal
        self._complete_set: tuple[int, int] | None = None
        """Generation and step of that set; (0, 0): there is none; None: unknown in this incarnation."""
        self._generation = 0
        self._is_requested = False
        self._due_s = 0.0
        self._allowed, self._short = MirrorAllowance(), dict[str, str]()
        self._last_emitted: tuple[int | None, MirrorLevel, str] = (_UNKNOWN, MirrorLevel.TWO, "")
        self._emitted = 0
        self._failing = False
        self._work: asyncio.Task[None] | None = None

    def poll(self, monitor: GenerationMonitor) -> None:
        """Start the next call that is due. Call it after each message, and periodically."""
        if not self._pairs or (self._work is not None and not self._work.done()):
            return
        generation = monitor.generation
        self._update_allowance(monitor)
        if generation.number != self._generation:
            self._generation, self._is_requested, self._due_s = generation.number, False, 0.0
        steps = monitor.pop_complete_mirrors()
        if self._allowed.level is MirrorLevel.NONE:
            if self._complete_set != _NO_SET or steps:
                self._work = asyncio.get_running_loop().create_task(self._release_all())
        elif steps:
            self._work = asyncio.get_running_loop().create_task(self._send(generation, steps[-1]))
        elif not self._is_requested and monitor.first_step_s is not None and time.monotonic() >= self._due_s:
            self._is_requested = True
            self._work = asyncio.get_running_loop().create_task(self._request(generation))

    def record_loss(self) -> None:
        """Record the loss of a node and of its mirrors. No mirror is complete until the next set is sent."""
        if self._work is not None:
            self._work.cancel()  # Ray may keep a call to the lost node waiting for long
        self._emit(None)

    def _update_allowance(self, monitor: GenerationMonitor) -> None:
        """Reduce the memory of mirrors while nodes are short of memory, and increase it later."""
        self._short.update(monitor.short_of_memory)
        monitor.short_of_memory.clear()
        shortage = "; ".join(f"{self._gang.configs[node].node_name}: {what}" for node, what in self._short.items()
                         if what and node in self._gang.configs)  # fmt: skip
        self._set_allowance(update_allowance(self._allowed, shortage, time.monotonic()))

    def _set_allowance(self, allowed: MirrorAllowance) -> None:
        before, self._allowed = self._allowed, allowed
        if (before.level, before.why) != (allowed.level, allowed.why):
            self._emit(self.step)

    async def _release_all(self) -> None:
        """Release the memory of mirrors on all nodes."""
        self._complete_set, self._is_requested = _NO_SET, False
        self._emit(None)
        await self._calls.retain(*_NO_SET)

    async def _request(self, generation: Generation) -> None:
        try:
            if self._complete_set is None:
                await self._restore()
            await self._calls.request_set(generation)
        except (AgentError, AgentLostError):
            self._is_requested = False  # other code detects the loss
            self._due_s = time.monotonic() + 1.0

    async def _restore(self) -> None:
        """Restore the set that an earlier incarnation of this supervisor sent completely.

        Agents retain a set only when all agents have it, so the newest set of any agent is complete.
        """
        named = await self._calls.list_mirrored()
        self._complete_set = max(named, key=lambda kept: (kept[1], kept[0]), default=_NO_SET)
        self.step = self._complete_set[1] or None
        await self._calls.retain(*self._complete_set)

    async def _send(self, generation: Generation, step: int) -> None:
        started = time.monotonic()
        try:
            if self._allowed.level is MirrorLevel.ONE:
                self._complete_set = _NO_SET
                self._emit(None)
                await self._calls.release_for(generation.number, step)
            await self._calls.send(generation, step, self._pairs, self._bytes_per_s)
            self._complete_set = (generation.number, step)
            await self._calls.retain(*self._complete_set)
            self._failing = False
            self._emit(step)
        except (AgentError, AgentLostError) as error:
            await self._record_failure(generation, step, error)
            if isinstance(error, AgentError) and error.kind is AgentErrorKind.NO_MEMORY:
                self._set_allowance(lower_allowance(self._allowed, str(error), time.monotonic()))
            await self._calls.retain(*(self._complete_set or _NO_SET))
        finally:
            self._is_requested = False
            self._due_s = time.monotonic() + pause_s(time.monotonic() - started, self._share)

    async def _record_failure(self, generation: Generation, step: int, error: Exception) -> None:
        """Record a failure once until the next success, unless the generation has ended with its sets."""
        if self._failing or generation.number != self._generation:
            return
        self._failing = True
        note = NoteRecorded("mirror_failed", {"step": step, "message": str(error)})
        await self._journal.record(f"mirror_failed:{generation.number}:{step}", note, generation.number)

    def _emit(self, step: int | None) -> None:
        self.step = step
        level, why = self._allowed.level, self._allowed.why
        if (step, level, why) == self._last_emitted:
            return
        self._last_emitted = (step, level, why)
        self._emitted += 1
        key = f"mirror:{self._journal.boot_id[:8]}:{self._emitted}"
        self._journal.emit(key, MirrorChanged(step, int(level), why), self._generation, time.time())


class _MirrorCalls:
    """Calls to the agents of one gang."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    async def request_set(self, generation: Generation) -> None:
        """Request that all ranks retain the next set for mirrors. They report it when they do.

        Raises:
            AgentLostError, AgentError: the node of the leading rank does not answer.
        """
        leader = self._gang.agents.agent(generation.nodes[0], timeout_s=CALL_TIMEOUT_S)
        await leader.request_mirror(generation.number)

    async def send(
        self, generation: Generation, step: int, pairs: Mapping[str, str], bytes_per_s: float | None
    ) -> None:
        """Let every node send its part of a retained set to its pair.

        Raises:
            AgentLostError, AgentError: one node failed, so no mirror of this set counts.
        """
        addresses = await self._gang.transfer_addresses(pairs.values())

        async def one(node: str) -> None:
            ranks = [place.rank for place in generation.on(node)]
            agent = self._gang.agents.agent(node, timeout_s=MIRROR_TIMEOUT_S)
            await agent.send_mirror(generation.number, step, ranks, addresses[pairs[node]], bytes_per_s)

        await gather_all(one(node) for node in generation.nodes)

    async def retain(self, generation: int, step: int) -> None:
        """Let every node that answers retain this set of mirrors and release all others."""
        await self._gang.call_reachable(lambda agent: agent.retain_mirror(generation, step))

    async def release_for(self, generation: int, step: int) -> None:
        """Let every node that answers release its mirrors before this set is sent."""
        await self._gang.call_reachable(lambda agent: agent.release_mirrors(generation, step))

    async def list_mirrored(self) -> list[tuple[int, int]]:
        """Return generation and step of the mirrored set of each node that has one.

        Raises:
            AgentLostError: a node does not answer.
        """
        statuses = await self._gang.call_all(lambda agent: agent.status(), timeout_s=CALL_TIMEOUT_S)
        return [status.mirrored for status in statuses.values() if status.mirrored]
