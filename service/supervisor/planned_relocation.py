"""Planned moves: other nodes are prepared while training runs, then all ranks end at an agreed step."""

import asyncio
import contextlib
import time
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.drain_deadlines import DrainSchedule, schedule_drain
from regroup.service.policy.recovery.restore_source import RestoreKind
from regroup.service.policy.recovery.termination import function_time_s, script_terminates_at_s, script_time_s
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.assignment import PlannedChange
from regroup.service.ports.sync import UnreadyNodes
from regroup.service.supervisor.gang.gang import CALL_TIMEOUT_S, Gang
from regroup.service.supervisor.gang.termination import Termination
from regroup.service.supervisor.gang_setup import prepare_nodes
from regroup.service.supervisor.generation_overlap import GenerationOverlap
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.intents import IntentTracker
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.outcomes import Relocated, Requeued, Shape

_DELIVERY_TIMEOUT_S = 60.0
"""Longest wait in seconds for the database to receive the messages of a former node. The node must be released."""
_POLL_S = 0.2
_RELEASE = "release"


class PlannedRelocation:
    """Carries out planned changes. After a relocation, a new instance starts and finds the prepared agents."""

    def __init__(
        self,
        payload: JobConfig,
        gang: Gang,
        intents: IntentTracker,
        log: EventLog,
        termination: Termination,
        overlap: GenerationOverlap,
    ) -> None:
        self.unready: UnreadyNodes | None = None
        """Assigned nodes that the job cannot use. The controller replaces them."""
        self._payload, self._gang, self._intents, self._log = payload, gang, intents, log
        self._termination, self._overlap = termination, overlap
        self._work: dict[str, asyncio.Task[None]] = {}
        """Purpose → its task. Each task starts once."""
        self._prepared_shape: Shape | None = None
        """Shape whose new nodes are prepared."""
        self._formed_shape: Shape | None = None
        """Shape whose ranks wait for their state, or cannot be formed before the present ranks end."""
        self._target_shape: Shape | None = None
        """Shape that is being prepared."""
        self._is_ended = False

    def reconcile(self, monitor: GenerationMonitor, *, is_saving: bool) -> Cause | None:
        """Start the next action of a planned change. Return a cause once the generation must end."""
        if self._gang.former and self._is_former_state_unneeded(monitor):
            self._start_once(_RELEASE, self._release_former())
        if self._has_own_set(monitor):
            self._start_once(
                f"source of {monitor.generation.number}",
                self._gang.release_restore_source(mirrors=bool(self._payload.mirror_pairs)),
            )
        change, relocation = self._intents.change, self._intents.planned_relocation
        if change is None or (relocation is None and not change.is_requeue):
            self._cancel_preparation()
            self._is_ended = self._termination.is_over(monitor) or monitor.is_stopped
            return Cause(Reason.DRAINED, "the planned change was withdrawn", time.time()) if self._is_ended else None
        now_s, times = time.time(), schedule_drain(change.noticed_s, change.deadline_s)
        if relocation is not None:
            if relocation.shape != self._target_shape:
                self._cancel_preparation()
                self._target_shape = relocation.shape
            self._start_once("prepare", self._prepare(relocation))
            if self._is_ready and self._can_overlap(monitor):
                self._start_once("form", self._form_ranks(relocation, monitor))
        if (self._is_formed or change.is_requeue or now_s > times.stop_s) and self._can_stop_ranks(
            monitor, now_s, times, is_saving
        ):
            self._start_once(f"stop {monitor.generation.number} {change.is_requeue}", self._stop(monitor, change))
        is_due = self._is_end_due(monitor, now_s, times, is_saving)
        if is_due and not monitor.is_stopped:
            self._termination.begin(monitor, self._time_to_end_s(change, now_s), change.why)
        self._is_ended = self._termination.is_over(monitor) or (is_due and monitor.is_stopped)
        return Cause(change.reason, change.why, now_s, evidence=change.evidence) if self._is_ended else None

    def outcome(self) -> Exception | None:
        """Return how the job continues after the end of a generation, planned or not. None: on the same nodes."""
        change = self._intents.change
        if self._is_ended and change is not None and change.is_requeue:
            return Requeued(change.why, change.reason)
        return self._intents.planned_relocation if self._is_ended or self._is_ready else None

    def settle(self) -> None:
        """Discard the prepared ranks if the generation failed, or ended before they were ready."""
        if not self._is_ended or self._gang.prepared is None or not self._gang.prepared.is_ready:
            self._cancel("form")
            self._overlap.discard()

    def _can_overlap(self, monitor: GenerationMonitor) -> bool:
        """Return whether to form the next ranks now: a training function has committed a step of this generation."""
        return self._payload.script is None and monitor.first_step_s is not None

    def _time_to_end_s(self, change: PlannedChange, now_s: float) -> float:
        """Return the time that ranks have from SIGTERM now until SIGKILL."""
        time_s = function_time_s if self._payload.script is None else script_time_s
        return time_s(now_s, change.deadline_s, self._payload.spec.termination_grace)

    def _is_former_state_unneeded(self, monitor: GenerationMonitor) -> bool:
        """Return whether the state on former nodes is unneeded: after the first step, at the end, and for scripts."""
        return monitor.first_step_s is not None or monitor.is_complete or self._payload.script is not None

    def _has_own_set(self, monitor: GenerationMonitor) -> bool:
        """Return whether the ranks have their own set in memory, so that no rank needs its restore source any more.

        That holds once a step after their first snapshot is committed. Snapshots that other ranks wrote are separate.
        """
        generation, every = monitor.generation, self._payload.spec.snapshot.every_steps
        every = 1 if every == "auto" else every  # the first step has a snapshot, to measure its cost
        first = (generation.start_step // every + 1) * every
        return generation.source.kind is RestoreKind.MEMORY and monitor.step > first

    @property
    def _is_ready(self) -> bool:
        relocation = self._intents.planned_relocation
        return relocation is not None and relocation.shape == self._prepared_shape

    @property
    def _is_formed(self) -> bool:
        """True if nothing is left to do before the present ranks end."""
        return self._is_ready and self._formed_shape == self._prepared_shape

    def _can_stop_ranks(self, monitor: GenerationMonitor, now_s: float, times: DrainSchedule, is_saving: bool) -> bool:
        """Return whether to request the agreed stop.

        Ranks accept requests after their first step; scripts never do. A checkpoint that is being saved is completed
        first while there is time.
        """
        is_accepting = self._payload.script is None and monitor.first_step_s is not None
        return is_accepting and (not is_saving or now_s > times.stop_s)

    def _is_end_due(self, monitor: GenerationMonitor, now_s: float, times: DrainSchedule, is_saving: bool) -> bool:
        change = self._intents.change
        assert change is not None, "call this only during a planned change"
        if self._payload.script is not None:  # ranks of a script cannot agree on a step
            terminates_at_s = script_terminates_at_s(
                change.noticed_s, change.deadline_s, self._payload.spec.termination_grace
            )
            return self._is_ready or change.is_requeue or now_s > terminates_at_s
        if monitor.is_stopped:
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
        self._cancel("prepare", "form", "stop")
        self._target_shape, self._prepared_shape, self._formed_shape, self.unready = None, None, None, None
        self._overlap.discard()

    def _cancel(self, *purposes: str) -> None:
        for name in [name for name in self._work if name.startswith(purposes)]:
            self._work.pop(name).cancel()

    async def _prepare(self, relocation: Relocated) -> None:
        """Prepare agents, zygotes and data on the new nodes, and check that the nodes are fit."""
        self._prepared_shape, self.unready = None, None
        payload = self._payload.with_nodes(relocation.nodes, relocation.layout)
        configs = {node: config for node, config in payload.agent_configs().items() if node not in self._gang.configs}
        try:
            await prepare_nodes(payload, self._gang.with_configs(configs), self._log.emit_note)
            self._prepared_shape = relocation.shape
        except (AgentError, AgentLostError) as error:
            self._mark_unready(relocation, str(error))
        except Exception as error:  # otherwise the job would wait without end
            self._mark_unready(relocation, f"{type(error).__name__}: {error}; please report this")

    async def _form_ranks(self, relocation: Relocated, monitor: GenerationMonitor) -> None:
        self._formed_shape = None
        payload = self._payload.with_nodes(relocation.nodes, relocation.layout)
        await self._overlap.form(payload, monitor.generation.number)
        self._formed_shape = relocation.shape
        monitor.changed.set()

    def _mark_unready(self, relocation: Relocated, why: str) -> None:
        self.unready = UnreadyNodes(tuple(sorted(relocation.node_ids)), why)

    async def _release_former(self) -> None:
        """Stop the agents of former nodes once the database has received all their messages."""

        async def wait_for_delivery(node: str) -> None:
            with contextlib.suppress(AgentLostError, TimeoutError):
                async with asyncio.timeout(_DELIVERY_TIMEOUT_S):
                    while True:
                        if not (await self._gang.agents.agent(node, timeout_s=CALL_TIMEOUT_S).status()).unsent:
                            return
                        await asyncio.sleep(_POLL_S)

        try:
            await asyncio.gather(*(wait_for_delivery(node) for node in self._gang.former))
            await self._gang.shut_down(list(self._gang.former))
        finally:
            self._gang.former = {}

    async def _stop(self, monitor: GenerationMonitor, change: PlannedChange) -> None:
        with contextlib.suppress(AgentError, AgentLostError):  # other code detects the end of the generation
            await self._gang.stop_ranks(monitor.generation, change.why, save=change.is_requeue)
            self._log.emit_planned_end(monitor.generation.number, f"ranks stop at their next step: {change.why}")
