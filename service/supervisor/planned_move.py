"""Nodes are about to leave: others are made ready while training runs, then all ranks end at a step they agree on."""

import asyncio
import contextlib
import time
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.drain_deadlines import DrainSchedule, schedule_drain
from regroup.service.policy.recovery.restore_source import RestoreKind
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.assignment import PlannedChange
from regroup.service.ports.sync import UnreadyNodes
from regroup.service.supervisor.event_log import EventLog
from regroup.service.supervisor.gang import CALL_TIMEOUT_S, Gang
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.intents import IntentTracker
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.node_setup import prepare_nodes
from regroup.service.supervisor.outcomes import Relocated, Requeued, Shape

_TOLD_TIMEOUT_S = 60.0
"""A database that is away for longer is not waited for: the node has to go."""
_POLL_S = 0.2
_LET_GO = "let go"


class PlannedMove:
    """What is under way of a planned change. A life that follows another begins anew, and finds the agents there."""

    def __init__(self, payload: JobConfig, gang: Gang, intended: IntentTracker, telling: EventLog) -> None:
        self.unready: UnreadyNodes | None = None
        """Nodes that the job was to move to and cannot use, so that the controller finds others."""
        self._payload, self._gang, self._intents, self._telling = payload, gang, intended, telling
        self._work: dict[str, asyncio.Task[None]] = {}
        """By what it is for, so that each is begun once."""
        self._prepared_shape: Shape | None = None
        """What the job is to be, where the nodes of it that are new to the job are ready."""
        self._is_ended = False

    def reconcile(self, watch: GenerationMonitor, *, is_saving: bool) -> Cause | None:
        """Bring it on; returns why the generation ends, once it is to be ended."""
        if self._gang.former and self._is_former_state_unneeded(watch):
            self._start_once(_LET_GO, self._release_former())
        if self._has_own_set(watch):
            self._start_once(
                f"source of {watch.generation.number}",
                self._gang.release_restore_source(mirrors=bool(self._payload.mirror_pairs)),
            )
        change, moved = self._intents.change, self._intents.planned_relocation
        if change is None or (moved is None and not change.is_requeue):
            self._cancel_preparation()
            self._is_ended = watch.is_stopped
            return Cause(Reason.DRAINED, "nothing has to leave after all", time.time()) if watch.is_stopped else None
        now_s, times = time.time(), schedule_drain(change.noticed_s, change.deadline_s)
        if moved is not None:
            self._start_once(f"ready {moved.shape}", self._prepare(moved))
        if (self._is_ready or change.is_requeue or now_s > times.stop_s) and self._can_stop_ranks(
            watch, now_s, times, is_saving
        ):
            asked = f"stop {watch.generation.number} {change.is_requeue}"
            self._start_once(asked, self._stop(watch, change))
        self._is_ended = self._is_end_due(watch, now_s, times, is_saving)
        return Cause(change.reason, change.why, now_s, evidence=change.evidence) if self._is_ended else None

    def outcome(self) -> Exception | None:
        """How the job goes on after a generation that has ended, by plan or not; None: where it is."""
        change = self._intents.change
        if self._is_ended and change is not None and change.is_requeue:
            return Requeued(change.why, change.reason)
        return self._intents.planned_relocation if self._is_ended or self._is_ready else None

    def _is_former_state_unneeded(self, watch: GenerationMonitor) -> bool:
        """Of what the job has left: its first step elsewhere proves that, or its end; a script has its state itself."""
        return watch.first_step_s is not None or watch.is_complete or self._payload.script is not None

    def _has_own_set(self, watch: GenerationMonitor) -> bool:
        """The step after the first that was kept in memory was agreed on: what ranks were restored from is needed by
        nobody any more. It lies apart from their own where other ranks wrote it."""
        generation, every = watch.generation, self._payload.spec.snapshot.every_steps
        every = 1 if every == "auto" else every  # it begins with the first, to learn what they cost
        first = (generation.start_step // every + 1) * every
        return generation.source.kind is RestoreKind.MEMORY and watch.step > first

    @property
    def _is_ready(self) -> bool:
        moved = self._intents.planned_relocation
        return moved is not None and moved.shape == self._prepared_shape

    def _can_stop_ranks(self, watch: GenerationMonitor, now_s: float, times: DrainSchedule, is_saving: bool) -> bool:
        """A checkpoint that is being saved is waited for; so is a first step, before which ranks do not listen. Scripts
        never do."""
        listens = self._payload.script is None and watch.first_step_s is not None
        return listens and (not is_saving or now_s > times.stop_s)

    def _is_end_due(self, watch: GenerationMonitor, now_s: float, times: DrainSchedule, is_saving: bool) -> bool:
        change = self._intents.change
        assert change is not None, "it is asked only where there is one"
        if self._payload.script is not None:  # its steps and its state are its own: it has none to agree on
            return self._is_ready or change.is_requeue or now_s > times.stop_s
        if watch.is_stopped:
            return not (change.is_requeue and is_saving) or (
                change.deadline_s is not None and now_s > change.deadline_s
            )
        return now_s > times.kill_s

    def _start_once(self, name: str, work: Any) -> None:
        if name in self._work:
            work.close()
            return
        self._work[name] = asyncio.get_running_loop().create_task(work)

    def _cancel_preparation(self) -> None:
        for name in [name for name in self._work if name.startswith(("ready", "stop"))]:
            self._work.pop(name).cancel()
        self._prepared_shape, self.unready = None, None

    async def _prepare(self, moved: Relocated) -> None:
        """Agents, zygotes and data on the nodes that come, and nothing that speaks against their use."""
        self._prepared_shape, self.unready = None, None
        payload = self._payload.with_nodes(moved.nodes, moved.layout)
        configs = {node: config for node, config in payload.agent_configs().items() if node not in self._gang.configs}
        try:
            await prepare_nodes(payload, self._gang.with_configs(configs), self._telling.note)
            self._prepared_shape = moved.shape
        except (AgentError, AgentLostError) as error:
            self._mark_unready(moved, str(error))
        except Exception as error:  # else it would be waited for
            self._mark_unready(moved, f"{type(error).__name__}: {error}; please report this")

    def _mark_unready(self, moved: Relocated, why: str) -> None:
        self.unready = UnreadyNodes(tuple(sorted(moved.node_ids)), why)

    async def _release_former(self) -> None:
        """End the agents of the nodes that the job has left, once the database has all that they had to tell."""

        async def told(node: str) -> None:
            with contextlib.suppress(AgentLostError, TimeoutError):
                async with asyncio.timeout(_TOLD_TIMEOUT_S):
                    while True:
                        if not (await self._gang.agents.agent(node, timeout_s=CALL_TIMEOUT_S).status()).unsent:
                            return
                        await asyncio.sleep(_POLL_S)

        try:
            await asyncio.gather(*(told(node) for node in self._gang.former))
            await self._gang.shut_down(list(self._gang.former))
        finally:
            self._gang.former = {}

    async def _stop(self, watch: GenerationMonitor, change: PlannedChange) -> None:
        with contextlib.suppress(AgentError, AgentLostError):  # its end is noticed elsewhere
            await self._gang.stop_ranks(watch.generation, change.why, save=change.is_requeue)
            self._telling.leaves(watch.generation.number, f"ranks are told to end at their next step: {change.why}")
