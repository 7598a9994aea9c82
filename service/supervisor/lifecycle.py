"""Lifecycle of a supervised job: one path for start, failure and end.

    end generation g → choose a restore source → write record g+1 → form ranks → restore → first step

This module does not import Ray. Agents, records and time are passed in as ports.
"""

import asyncio
import contextlib
import time
import traceback
from dataclasses import replace

from regroup.service.domain.detectors import Detector
from regroup.service.domain.job_events import StateChanged, decoded, encode
from regroup.service.domain.rank_reports import encode_rank_reports
from regroup.service.domain.states import JobState, Reason
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.policy.recovery.budget import RecoveryDecision
from regroup.service.policy.recovery.classify import ZYGOTE_RANK
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource, choose_recovery_action
from regroup.service.ports.agents import INPUT_ERROR_KINDS, AgentError, AgentLostError
from regroup.service.ports.sync import Intents, SupervisorStatus
from regroup.service.supervisor.failure_hold import FailureHold
from regroup.service.supervisor.gang.checkpoints import Checkpoints
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.hang_detector import HangDetector
from regroup.service.supervisor.gang.liveness import Liveness
from regroup.service.supervisor.gang.mirrors import Mirrors
from regroup.service.supervisor.gang.preflight import Preflight
from regroup.service.supervisor.gang.restore_monitor import RestoreMonitor
from regroup.service.supervisor.gang.storage_proof import StorageProof
from regroup.service.supervisor.gang.straggler_monitor import StragglerMonitor
from regroup.service.supervisor.gang.termination import Termination
from regroup.service.supervisor.gang_setup import GangSetup
from regroup.service.supervisor.generation_overlap import GenerationOverlap
from regroup.service.supervisor.job_end import JobEnd
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor, restore_monitor
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog, SupersededError
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.intents import IntentTracker
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.journal import Journal
from regroup.service.supervisor.job_state.outcomes import Finished, Relocated, Requeued
from regroup.service.supervisor.job_state.pace import rank_pace, status_pace
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.service.supervisor.planned_relocation import PlannedRelocation
from regroup.service.supervisor.recovery import RecoveryRun, failure_json, input_error, restore_failure
from regroup.service.supervisor.restart_check import make_restart_check
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import AgentReport, Exited, Message, Note, Report, Restored, StepRow

_SETTLE_S = 5.0
"""Longest time in seconds that a relocation waits for checkpoints that are being saved."""
_POLL_S = 0.5
"""Seconds between polls of a generation from which no message arrives."""


class Lifecycle:
    """Runs a job from its first generation to its end, on one set of nodes.

    The supervisor may call `set_intents` and the `receive` methods at any time.
    """

    def __init__(self, payload: JobConfig, gang: Gang, generations: GenerationLog, journal: Journal) -> None:
        self.payload, self.gang, self.journal = payload, gang, journal
        self._generations = generations
        self._monitor: GenerationMonitor | None = None
        self._log = EventLog(journal, payload.attempt)
        self._state = SupervisorState(self._log, is_script=payload.script is not None)
        self._intents = IntentTracker({node.node_id: node.name for node in payload.nodes}, payload.shape)
        disabled = payload.spec.disable_detectors
        self.liveness = Liveness(is_disabled=Detector.HEARTBEAT in disabled)
        self._hang_detector = HangDetector(gang, payload.hang_policy)
        world_size = payload.layout.world_size
        self._rank_pace, self._status_pace = rank_pace(world_size), status_pace(world_size)
        self._straggler_monitor = StragglerMonitor(journal, is_disabled=Detector.STRAGGLER in disabled)
        self._restore_monitor = RestoreMonitor(self._state)
        self.failure_hold = FailureHold(payload.spec.hold_on_failure, gang, journal)
        self._checkpoints = Checkpoints(payload, gang, journal)
        snapshot = payload.spec.snapshot
        self._mirrors = Mirrors(payload.mirror_pairs, snapshot.mirror_share, snapshot.mirror_bandwidth, gang, journal)
        self._recovery = RecoveryRun(payload, gang, generations, self._checkpoints, self._state, self._log)
        self._recovery.announced = self._intents.announced
        self._preflight = Preflight(payload, gang, self._state, self._log, self._intents)
        self._termination = Termination(gang, self._log, self.liveness.silent_nodes)
        verify, is_program = payload.spec.recovery.verify, payload.script is not None
        self._restart_check = make_restart_check(self._log, verify, is_program=is_program)
        overlap = GenerationOverlap(gang, generations, self._recovery.join_message, self._log)
        self._planned_relocation = PlannedRelocation(
            payload, gang, self._intents, self._log, self._termination, overlap
        )
        self._storage = StorageProof(gang, payload.storage_nonce, self._log.emit_note)
        self._setup = GangSetup(
            payload,
            gang,
            generations,
            self._state,
            self._log,
            self._intents,
            self.liveness,
            self._recovery,
            self._storage,
        )
        self._end = JobEnd(gang, generations, journal, self._state, self._recovery.evidence, self.failure_hold)
        gang.on_phase = self._state.enter_phase

    # ------------------------------------------------------------ input and status

    def set_intents(self, intents: Intents) -> None:
        """Set the controller's intents. Act on them at once, or where the job waits."""
        self._checkpoints.pinned = frozenset((pin.step, pin.generation) for pin in intents.pins)
        if intents.cancel or intents.release:
            self.failure_hold.release()
        if self._intents.update(intents) and self._monitor is not None:
            self._monitor.changed.set()

    def receive_report(self, report: AgentReport) -> bool:
        """Process the rank activity in an agent's report. Return False if a full report must follow."""
        self._restore_monitor.receive(report)
        self._checkpoints.progress.receive(report)
        return self._hang_detector.table.receive(report)

    def receive(self, node_id: str, message: Message) -> None:
        """Process one message of an agent."""
        if isinstance(message, StepRow):
            self._log.emit_step(message)
            self._checkpoints.record_validation(message)
        elif isinstance(message, Report):
            self._log.emit_report(message)
        elif isinstance(message, Note):
            self.receive_note(node_id, message)
        elif isinstance(message, Restored) and message.rank == 0 and self.payload.script is not None:
            self._state.record_script_resume(message)
        generation, prepared = getattr(message, "generation", None), self.gang.prepared
        if prepared is not None and generation == prepared.generation.number:
            prepared.receive(message)
        if self._monitor is not None and generation == self._monitor.generation.number:
            self._monitor.receive(node_id, message)

    def receive_note(self, node_id: str, note: Note) -> None:
        """Process a note about a node, which may be a spare node outside the job."""
        if note.kind == "progress":
            phase = note.data.get("phase", SupervisorPhase.DATA)
            self._state.enter_phase(phase, note.data.get("fraction"), note.data.get("message", ""))
        else:
            self._log.emit_note(node_id, note)

    @property
    def is_saving(self) -> bool:
        """True while a checkpoint is written. Each status has its progress."""
        return self._checkpoints.is_saving

    def has_ended(self, generation: int) -> bool:
        """Return whether the ranks of a generation are dead, so that their output is complete."""
        newest = self._monitor.generation.number if self._monitor else 0
        return generation < newest or self._state.is_without_ranks

    def status(self) -> SupervisorStatus:
        """Return the present state for the controller."""
        monitor, incident = self._monitor, self._state.incident
        ranks = encode_rank_reports(self._hang_detector.table.reports()) if self._status_pace.is_due() else None
        return SupervisorStatus(
            state=self._state.state.value,
            phase=self._state.phase,
            step=monitor.step if monitor else 0,
            generation=monitor.generation.number if monitor else 0,
            ranks=ranks,
            lost=tuple(sorted(self._setup.lost_nodes())),
            nodes=tuple(sorted(self.gang.configs)),
            ranks_by_node=self.payload.ranks_by_node,
            layout=self.payload.layout,
            former=tuple(sorted(self.gang.former)),
            unready=self._planned_relocation.unready,
            incident=encode(incident.to_event()) if incident else None,
            save=self._checkpoints.progress.status(),
            storage_proof=self.payload.storage_nonce if self.gang.node_facts.storage_seen else "",
            storage_nodes=tuple(sorted(self.gang.node_facts.storage_seen.values())),
        )

    # ------------------------------------------------------------ recovery path

    async def run(self) -> Relocated | None:
        """Run the job until it ends or queues again (None), or until it moves to other nodes. Never raise."""
        try:
            await self._run_generations()
        except SupersededError:
            return None
        except Relocated as relocated:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_S):
                    await self._checkpoints.wait_for_saves()
            incident = self._state.incident
            await self._log.record_relocation(relocated, incident.generation if incident else 0)
            return relocated
        except Requeued as requeued:
            await self._end.requeue(str(requeued), requeued.reason)
        except Finished as end:
            if end.is_requested:
                await self._terminate_ranks(end)
            await self._end.finish(end)
        except AgentLostError as error:
            await self._queue_again(error)
        except Exception as error:
            trace = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            message = f"{type(error).__name__}: {error}; please report this"
            await self._end.finish(Finished(Reason.PLATFORM_ERROR, message, trace))
        finally:
            self._recovery.evidence.stop()
        return None

    async def _queue_again(self, error: AgentLostError) -> None:
        """Queue the job again because agents are missing, unless its starts have failed too often."""
        if self._state.state in (JobState.STARTING, JobState.QUEUED):  # QUEUED: the job queued before and starts now
            decision = await self._recovery.charge_failed_start(error, self.payload.attempt)
            if not decision.is_recovery:
                await self._end.finish(Finished(decision.reason, decision.message))
                return
        await self._end.requeue(f"not all agents of the job could be started: {error}", Reason.REQUEUED)

    async def _run_generations(self) -> None:
        await self._generations.load()
        # The journal is newer, but lost with the cluster.
        past = [*self.payload.incidents, *await self.journal.replay()]
        if any(event.state.is_terminal for event in decoded(past, StateChanged)):
            return  # the job has ended, and the controller has not received that event
        self._log.replay(past)
        self._state.replay(past)
        pending_end = self._recovery.replay(past)
        relocated = Relocated.replay(past, self.payload.attempt, self.payload.layout)
        if relocated is not None and not self.payload.has_same_places(
            self.payload.with_nodes(relocated.nodes, relocated.layout)
        ):
            raise relocated  # this supervisor was created with the nodes of the first placement
        if (end := self.failure_hold.replay(past) or pending_end) is not None:
            raise end
        if not self._generations.starts:
            await self._state.change(JobState.STARTING, Reason.RESERVED, "devices are reserved")
        await self._setup.start_agents()
        monitor = await self._adopt(self._generations.past[-1]) if self._generations.past else None
        if monitor is not None:
            self._preflight.mark_all_passed()
        await self._preflight.run_alongside(self._setup.prepare_data())
        if monitor is None:
            monitor = await self._start_generation()
        while True:
            await self._run_generation(monitor)
            monitor = await self._recover(monitor)

    async def _start_generation(self) -> GenerationMonitor:
        """Start the first generation, or the one after the last generation of an earlier incarnation."""
        starts, incident = self._generations.starts, self._state.incident
        if incident is not None:
            await self._apply_decision(incident, await self._recovery.decide(incident))
        source = await self._intents.interruptible(self._recovery.choose_source(starts[max(starts)] if starts else 0))
        if incident is None:
            return await self._next_generation("restart" if starts else "start", source)
        previous_nodes = self._generations.past[-1].nodes if self._generations.past else ()
        if is_elsewhere := set(previous_nodes) != set(self.gang.configs):
            self._mirrors.record_loss()
        world_size = self.payload.layout.world_size
        action = choose_recovery_action(incident.cause.reason, source, world_size, is_elsewhere=is_elsewhere)
        self._state.decide(incident, source, action)
        next_monitor = await self._next_generation(incident.cause.reason.value, source)
        await self._state.revise(incident)
        return next_monitor

    async def _next_generation(self, cause: str, source: RestoreSource) -> GenerationMonitor:
        """Write the record of the next generation, then form its ranks."""
        generation = await self._generations.create(
            Generation(0, self.payload.layout, self.payload.places, source, cause)
        )
        what = "forming ranks" if self.gang.prepared is None else "handing over to ranks that wait"
        self._state.enter_phase(SupervisorPhase.FORMING, None, what, generation.number)
        monitor = self._monitor = GenerationMonitor(
            generation, step=source.step, disable_detectors=self.payload.spec.disable_detectors
        )
        self._state.link_generation(generation.number)
        await self.journal.record(f"generation:{generation.number}", generation.to_event(), generation.number)
        try:
            await self.gang.form_ranks(generation, self._recovery.join_message(self.payload))
        except AgentLostError as error:
            monitor.record_loss(error.node_id, time.time())
        except AgentError as error:
            is_storage = error.kind in (AgentErrorKind.STORAGE, AgentErrorKind.STORAGE_UNAVAILABLE)
            if is_storage and source.kind is RestoreKind.CHECKPOINT:
                if error.kind is AgentErrorKind.STORAGE:
                    await self._checkpoints.exclude(source.uri, generation.number, str(error))
                monitor.receive(error.node_id, restore_failure(error, generation))
            elif error.kind in INPUT_ERROR_KINDS:
                raise input_error(error) from error
            else:  # retry any other failure to fork ranks like the death of a zygote
                exited = Exited(ZYGOTE_RANK, generation.number, -9, time.time(), last_output=error.message)
                monitor.receive(error.node_id, replace(exited, failed_holders=error.failed_holders))
        return monitor

    async def _run_generation(self, monitor: GenerationMonitor) -> None:
        """Monitor a generation until it is broken. Raise the outcome of the job when it ends otherwise."""
        while True:
            monitor.changed.clear()
            self._state.mark_phases(monitor)
            if self.payload.script is not None:
                await self._state.record_script_start(monitor)
            await self._state.record_first_step(monitor)
            for pinned in monitor.pop_complete_pins():
                self._checkpoints.start_save(monitor.generation, pinned, self._generations, monitor.changed.set)
            self._mirrors.poll(monitor)
            self._restore_monitor.poll(monitor)
            self._storage.poll()
            for node in self.liveness.silent_nodes():
                monitor.record_loss(node, time.time())
            if (stop := self._intents.interruption()) is not None:
                raise stop
            self._restart_check.poll(monitor)
            monitor.detected_cause = monitor.detected_cause or self._restart_check.find_end(monitor)
            monitor.detected_cause = monitor.detected_cause or self._planned_relocation.reconcile(
                monitor, is_saving=self._checkpoints.is_saving
            )
            if monitor.is_broken:
                return
            if monitor.is_complete and not (monitor.is_stopped or self._checkpoints.is_saving or self.gang.former):
                raise await self._end.complete(monitor, is_script=self.payload.script is not None)
            if monitor.killed_at_s is not None:
                await _wait_for_change(monitor)
                continue  # ranks that save their work are neither slow nor stuck
            if self._rank_pace.is_due():
                activity = self._hang_detector.activity(monitor.generation.number)
                self._straggler_monitor.poll(monitor.generation, activity)
                if (hang := await self._hang_detector.poll(monitor)) is not None:
                    monitor.detected_cause = hang
                    continue
            await _wait_for_change(monitor)

    async def _terminate_ranks(self, end: Finished) -> None:
        """Let ranks that still run end by themselves, because a user or a limit ends the job."""
        monitor = self._monitor
        if monitor is not None and not (monitor.is_broken or monitor.is_complete):
            await self._termination.run(monitor, self.payload.spec.termination_grace, str(end))

    async def _recover(self, monitor: GenerationMonitor) -> GenerationMonitor:
        """Recover from a broken generation. Return the monitor of the next generation."""
        if await self._recovery.is_job_ending(monitor):
            self.failure_hold.record_stacks(monitor.places)
        incident, decision, lost, held = await self._recovery.end_generation(monitor)
        if why := monitor.checkpoint_damage:
            await self._checkpoints.exclude(monitor.generation.source.uri, monitor.generation.number, why)
        self._planned_relocation.settle()
        await self._apply_decision(incident, decision)
        if lost:
            self._mirrors.record_loss()
            self._checkpoints.record_loss(lost)
            await self.gang.kill_agents(lost)
            await self._setup.replace_lost(lost)
            await self._setup.prepare_data()
        self._preflight.require_recheck(incident, lost)
        choice = self._recovery.choose_source(monitor.step, held)
        source = await self._intents.interruptible(self._preflight.run_alongside(choice))
        action = choose_recovery_action(incident.cause.reason, source, self.payload.layout.world_size)
        self._state.decide(incident, source, action)
        next_monitor = await self._next_generation(incident.cause.reason.value, source)
        await self._state.revise(incident)
        return next_monitor

    async def _apply_decision(self, incident: Incident, decision: RecoveryDecision) -> None:
        """End the job, move or requeue it, or wait for the backoff, as decided."""
        if not decision.is_recovery:
            raise Finished(decision.reason, decision.message, failure_json(incident))
        if (outcome := self._planned_relocation.outcome()) is not None:
            raise outcome
        waited_s = max(0.0, time.time() - incident.times["seen_s"])  # the clock may have been set back
        if (wait_s := decision.backoff_s - waited_s) > 0:
            self._state.enter_phase(SupervisorPhase.BACKOFF, None, f"waiting {wait_s:.1f} s before the next attempt")
            await self._intents.interruptible(asyncio.sleep(wait_s))

    async def _adopt(self, last: Generation) -> GenerationMonitor | None:
        """Return the monitor of a generation that runs on all its ranks, or that is broken with evidence.

        Return None if it was never formed, or if the incident that ended it is recorded.
        """
        statuses = await self.gang.call_all(lambda agent: agent.status(), timeout_s=30)
        datasets = {node: status.dataset for node, status in statuses.items() if status.dataset}
        self.gang.node_facts.datasets.update(datasets)
        await self.gang.settle_prepared(statuses)
        grace_s, has_trained = self.payload.spec.termination_grace, self._state.last_trained == last.number
        self._monitor, is_formed = restore_monitor(last, statuses, grace_s, has_trained=has_trained)
        incident = self._state.incident
        if is_formed and (incident is None or incident.generation != last.number):
            self._state.adopt_generation(last)
            return self._monitor
        await self.gang.kill_ranks(last.number)
        return None


async def _wait_for_change(monitor: GenerationMonitor) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_POLL_S):  # not `wait_for`: it may ignore a cancellation on Python 3.11
            await monitor.changed.wait()
