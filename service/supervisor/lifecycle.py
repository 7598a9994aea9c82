"""A job's life as its supervisor runs it: one path for start, failure and end.

    end generation g → choose a source of state → write record g+1 → form → restore → first step

Nothing here knows Ray: agents, records and time come in as ports.
"""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Collection, Sequence

from regroup.service.domain.detectors import Detector
from regroup.service.domain.job_events import (
    RecoveryAction,
    ResultRecorded,
    StateChanged,
    SupervisorPhase,
    decoded,
    encode,
)
from regroup.service.domain.states import TERMINAL_BY_REASON, JobState, Reason
from regroup.service.policy.recovery.budget import RecoveryDecision
from regroup.service.policy.recovery.classify import ZYGOTE_RANK
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource, choose_recovery_action
from regroup.service.ports.agents import INPUT_ERROR_KINDS, AgentError, AgentLostError
from regroup.service.ports.sync import Intents, SupervisorStatus
from regroup.service.supervisor.adoption import found
from regroup.service.supervisor.checkpoints import Checkpoints
from regroup.service.supervisor.event_log import EventLog
from regroup.service.supervisor.failure_hold import FailureHold
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation, GenerationLog, SupersededError
from regroup.service.supervisor.hang_detector import HangDetector
from regroup.service.supervisor.incidents import Incident
from regroup.service.supervisor.intents import IntentTracker
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.journal import Journal
from regroup.service.supervisor.liveness import Liveness
from regroup.service.supervisor.mirrors import Mirrors
from regroup.service.supervisor.outcomes import Relocated, Requeued
from regroup.service.supervisor.planned_move import PlannedMove
from regroup.service.supervisor.preflight import Preflight
from regroup.service.supervisor.recovery import Finished, RecoveryRun, failure_json, input_error, restore_failure
from regroup.service.supervisor.straggler_monitor import StragglerMonitor
from regroup.workers.contract.agent_records import AgentErrorKind
from regroup.workers.contract.messages import AgentReport, Exited, Message, Note, Report, Restored, StepRow

GANG_TIMEOUT_S = 120.0
FENCE_S = 60.0
"""Ranks on a node that is silent without proof of death may go on writing files for so long."""
_OVERDUE_S = 5.0
"""Agents that are not up after so long may be on nodes that are gone."""
_SETTLE_S = 5.0
_POLL_S = 0.5
"""How often a watch looks for silence when nothing is said."""
_WITHOUT_RANKS = frozenset(
    {SupervisorPhase.RECOVERING, SupervisorPhase.HELD, SupervisorPhase.ENDED, SupervisorPhase.RELEASED}
)
"""Phases in which the ranks of the newest generation have been ended."""


class Lifecycle:
    """Runs a job from its first generation to its end. `hear` and `intend` may be called at any time."""

    def __init__(self, payload: JobConfig, gang: Gang, generations: GenerationLog, journal: Journal) -> None:
        self.payload, self.gang, self.journal = payload, gang, journal
        self.rank_phases: dict[str, tuple[int, str]] = {}
        """Rank → (step, phase), as the agents last saw it."""
        self._generations = generations
        self._monitor: GenerationMonitor | None = None
        self._intents = IntentTracker({node.node_id: node.name for node in payload.nodes}, payload.shape)
        self._bringing_up_s: float | None = None
        self._telling = EventLog(journal, payload.attempt, keeps_state=payload.script is not None)
        self.liveness = Liveness(is_disabled=Detector.HEARTBEAT in payload.spec.disable_detectors)
        self._hang_detector = HangDetector(gang, payload.hang_policy)
        self._straggler_monitor = StragglerMonitor(
            journal, is_disabled=Detector.STRAGGLER in payload.spec.disable_detectors
        )
        self.failure_hold = FailureHold(payload.spec.hold_on_failure, gang, journal)
        self._checkpoints = Checkpoints(payload, gang, journal)
        snapshot = payload.spec.snapshot
        self._mirrors = Mirrors(payload.mirror_pairs, snapshot.mirror_share, snapshot.mirror_bandwidth, gang, journal)
        self._recovery = RecoveryRun(payload, gang, generations, self._checkpoints, self._telling)
        self._recovery.announced = self._intents.announced
        self._preflight = Preflight(payload, gang, self._telling, self._intents)
        self._planned_move = PlannedMove(payload, gang, self._intents, self._telling)
        gang.on_phase = self._telling.enter

    # ------------------------------------------------------------ what comes in

    def set_intents(self, intents: Intents) -> None:
        """Act on the controller's intents, at once or where the job waits."""
        self._checkpoints.pinned = frozenset((pin.step, pin.generation) for pin in intents.pins)
        if intents.cancel or intents.release:
            self.failure_hold.release()
        if self._intents.update(intents) and self._monitor is not None:
            self._monitor.changed.set()

    def receive_report(self, report: AgentReport) -> None:
        """An agent has looked at its ranks."""
        self.rank_phases.update(report.phases)
        self._hang_detector.receive_report(report)

    def receive(self, node_id: str, message: Message) -> None:
        """Take one message of an agent."""
        if isinstance(message, StepRow):
            self._telling.step(message)
            self._checkpoints.record_validation(message)
        elif isinstance(message, Report):
            self._telling.report(message)
        elif isinstance(message, Note):
            self._telling.note(node_id, message)
        elif isinstance(message, Restored) and message.rank == 0 and self.payload.script is not None:
            self._telling.resumed(message)
        if self._monitor is not None and getattr(message, "generation", None) == self._monitor.generation.number:
            self._monitor.receive(node_id, message)

    def handle_note(self, node_id: str, note: Note) -> None:
        """A node that is no part of this life has something to tell."""
        self._telling.note(node_id, note)

    def has_ended(self, generation: int) -> bool:
        """Whether the ranks of a generation are gone, and what they wrote is complete."""
        newest = self._monitor.generation.number if self._monitor else 0
        return generation < newest or self._telling.phase in _WITHOUT_RANKS

    def status(self) -> SupervisorStatus:
        """Return the present state, for the controller."""
        watch = self._monitor
        return SupervisorStatus(
            state=self._telling.state.value,
            phase=self._telling.phase,
            step=watch.step if watch else 0,
            generation=watch.generation.number if watch else 0,
            ranks=self.rank_phases,
            lost=tuple(sorted(self._lost())),
            nodes=tuple(sorted(self.gang.configs)),
            seats=self.payload.seats,
            layout=self.payload.layout,
            former=tuple(sorted(self.gang.former)),
            unready=self._planned_move.unready,
            incident=encode(self._telling.incident.to_event()) if self._telling.incident else None,
        )

    # ------------------------------------------------------------ the path

    async def run(self) -> Relocated | None:
        """Live until the job has ended or queues again (None), or other nodes are given. Never raises."""
        try:
            await self._live()
        except SupersededError:
            return None
        except Relocated as moved:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_S):
                    await self._checkpoints.wait_for_saves()
            await self._telling.moved(moved)
            return moved
        except Requeued as left:
            await self._release(str(left), left.reason)
        except Finished as end:
            await self._finish(end)
        except AgentLostError as error:
            await self._release(f"the gang could not be held: {error}", Reason.REQUEUED)
        except Exception as error:
            trace = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            message = f"{type(error).__name__}: {error}; please report this"
            await self._finish(Finished(Reason.PLATFORM_ERROR, message, trace))
        finally:
            self._recovery.evidence.stop()
        return None

    async def _live(self) -> None:
        await self._generations.load()
        past = await self.journal.replay()
        if any(event.state.is_terminal for event in decoded(past, StateChanged)):
            return  # it ended; the controller has yet to hear so
        self._telling.recall(past)
        begun = self._recovery.replay(past)
        moved = Relocated.replay(past, self.payload.attempt, self.payload.layout)
        if moved is not None and not self.payload.has_same_places(self.payload.with_nodes(moved.nodes, moved.layout)):
            raise moved  # this supervisor was born with the nodes of the beginning
        if (end := self.failure_hold.replay(past) or begun) is not None:
            raise end
        if not self._generations.past:
            await self._telling.change(JobState.STARTING, Reason.RESERVED, "devices are held")
        await self._gang_up()
        watch = await self._adopt(self._generations.past[-1]) if self._generations.past else None
        if watch is not None:
            self._preflight.mark_all_passed()
        await self._preflight.run_alongside(self._prepare_data())
        if watch is None:
            watch = await self._begin_or_go_on()
        while not await self._watch_over(watch):
            watch = await self._recover(watch)

    async def _begin_or_go_on(self) -> GenerationMonitor:
        """The first generation, or the one after what an earlier life of this supervisor has left."""
        starts, incident = self._generations.starts, self._telling.incident
        if incident is not None:
            await self._abide(incident, await self._recovery.decide(incident))
        source = await self._intents.interruptible(
            self._recovery.choose_source((), starts[max(starts)] if starts else 0)
        )
        if incident is None:
            return await self._next_generation("restart" if starts else "start", source)
        before = self._generations.past[-1].nodes if self._generations.past else ()
        if is_elsewhere := set(before) != set(self.gang.configs):
            self._mirrors.record_loss()
        world_size = self.payload.layout.world_size
        action = choose_recovery_action(incident.cause.reason, source, world_size, is_elsewhere=is_elsewhere)
        self._telling.decide(incident, source, action)
        following = await self._next_generation(incident.cause.reason.value, source)
        await self._telling.revise(incident)
        return following

    async def _gang_up(self) -> None:
        self._telling.enter(SupervisorPhase.AGENTS, None, "bringing agents and zygotes up")
        self._bringing_up_s = time.monotonic()
        try:
            await self._intents.interruptible(self.gang.start_agents(GANG_TIMEOUT_S))
        except AgentError as error:
            raise input_error(error) from error
        finally:
            self._bringing_up_s = None
        self.liveness.expect(self.gang.configs)
        self._telling.nodes({node: self.gang.node_facts.descriptions[node] for node in self.gang.configs})

    def _lost(self) -> Collection[str]:
        """Nodes that may be gone for good, for the controller to look."""
        overdue = self._bringing_up_s is not None and time.monotonic() - self._bringing_up_s > _OVERDUE_S
        return self.gang.missing if overdue else self.gang.missing.intersection(self._intents.lost_nodes)

    async def _prepare_data(self) -> None:
        try:
            await self._intents.interruptible(self.gang.check_storage())
            preparing = self.gang.prepare_data(self.payload.data_sources)
            await self._intents.interruptible(self.liveness.run_while_alive(self.gang.configs, preparing))
        except AgentError as error:
            is_retried = error.kind is AgentErrorKind.STORAGE and self._generations.past
            if error.kind is not AgentErrorKind.STORAGE_UNAVAILABLE and not is_retried:
                raise input_error(error) from error
            await self._intents.interruptible(self._recovery.wait_for_storage(error))
            await self._prepare_data()
        self.liveness.expect(self.gang.configs)

    async def _next_generation(self, cause: str, source: RestoreSource) -> GenerationMonitor:
        """Write the record of the next generation, then fork its ranks."""
        generation = await self._generations.create(
            Generation(0, self.payload.layout, self.payload.places(), source, cause)
        )
        self._telling.enter(SupervisorPhase.FORMING, None, "forming ranks", generation.number)
        watch = self._monitor = GenerationMonitor(
            generation, step=source.step, disable_detectors=self.payload.spec.disable_detectors
        )
        if (incident := self._telling.incident) is not None:
            incident.next_generation = generation.number
        await self.journal.record(f"generation:{generation.number}", generation.to_event(), generation.number)
        try:
            await self.gang.form_ranks(generation, self._recovery.join_message())
        except AgentLostError as error:
            watch.record_loss(error.node_id, time.time())
        except AgentError as error:
            is_storage = error.kind in (AgentErrorKind.STORAGE, AgentErrorKind.STORAGE_UNAVAILABLE)
            if is_storage and source.kind is RestoreKind.CHECKPOINT:
                if error.kind is AgentErrorKind.STORAGE:
                    await self._checkpoints.exclude(source.uri, generation.number, str(error))
                watch.receive(error.node_id, restore_failure(error, generation))
            elif error.kind in INPUT_ERROR_KINDS:
                raise input_error(error) from error
            else:  # whatever else kept a node from forking is retried like its zygote's death
                watch.receive(error.node_id, Exited(ZYGOTE_RANK, generation.number, -9, time.time()))
        return watch

    async def _watch_over(self, watch: GenerationMonitor) -> bool:
        """Wait until the generation is broken (False); the job's end is raised."""
        while True:
            watch.changed.clear()
            self._telling.follow(watch)
            if self.payload.script is not None:
                await self._telling.runs(watch)
            await self._telling.trains(watch)
            for step in watch.pop_complete_pins():
                self._checkpoints.start_save(watch.generation, step, self._generations, watch.changed.set)
            self._mirrors.poll(watch)
            for node in self.liveness.silent_nodes():
                watch.record_loss(node, time.time())
            if (stop := self._intents.interruption()) is not None:
                raise stop
            watch.detected_cause = watch.detected_cause or self._planned_move.reconcile(
                watch, is_saving=self._checkpoints.is_saving
            )
            if watch.is_broken:
                return False
            if watch.is_complete and not (watch.is_stopped or self._checkpoints.is_saving or self.gang.former):
                await self._complete(watch)
            self._straggler_monitor.poll(watch.generation, self._hang_detector.activity(watch.generation.number))
            if (hang := await self._hang_detector.poll(watch)) is not None:
                watch.detected_cause = hang
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):  # not wait_for: Python 3.11's may swallow a cancel
                    await watch.changed.wait()

    async def _complete(self, watch: GenerationMonitor) -> None:
        number = watch.generation.number
        await self.gang.kill_ranks(number, ())
        await self.journal.record("result", ResultRecorded(watch.step, dict(watch.result())), number)
        script = self.payload.script
        done = f"all {watch.step} steps committed" if script is None else "the script ended with code 0 on every rank"
        raise Finished(Reason.COMPLETED, done)

    async def _recover(self, watch: GenerationMonitor) -> GenerationMonitor:
        """The path from a broken generation to the next one."""
        if await self._recovery.is_job_ending(watch):
            self.failure_hold.store_stacks(watch.places)
        incident, verdict, lost = await self._recovery.end_generation(watch)
        await self._abide(incident, verdict)
        if lost:
            self._mirrors.record_loss()
            self._checkpoints.record_loss(lost)
            await self.gang.kill_agents(lost)
            await self._succeed(lost)
            await self._prepare_data()
        self._preflight.require_recheck(incident, lost)
        choosing = self._recovery.choose_source((), watch.step)
        source = await self._intents.interruptible(self._preflight.run_alongside(choosing))
        action = choose_recovery_action(incident.cause.reason, source, self.payload.layout.world_size)
        self._telling.decide(incident, source, action)
        following = await self._next_generation(incident.cause.reason.value, source)
        await self._telling.revise(incident)
        return following

    async def _abide(self, incident: Incident, verdict: RecoveryDecision) -> None:
        """End the job, go where it was to go, or wait, as it was judged."""
        if not verdict.is_recovery:
            raise Finished(verdict.reason, verdict.message, failure_json(incident))
        if (way_on := self._planned_move.outcome()) is not None:
            raise way_on
        wait_s = verdict.backoff_s - max(0.0, time.time() - incident.times["seen_s"])  # a clock may be set back
        if wait_s > 0:
            self._telling.enter(SupervisorPhase.BACKOFF, None, f"waiting {wait_s:.1f} s before the next try")
            await self._intents.interruptible(asyncio.sleep(wait_s))

    async def _succeed(self, lost: Sequence[str]) -> None:
        """Bring agents up where they were lost: each ends what its predecessor left, which proves it dead. Where none
        comes up, another node may be given; a job that writes files itself does not go on elsewhere before what is left
        there must have stopped."""
        since_s = time.monotonic()
        self._intents.lost_nodes = tuple(lost)
        while self._intents.lost_nodes:
            try:
                await self._gang_up()
                self._intents.lost_nodes = ()
            except (AgentLostError, Relocated):
                passed_s = time.monotonic() - since_s
                if self._intents.interruption() is None and passed_s < GANG_TIMEOUT_S:
                    await asyncio.sleep(_POLL_S)  # Ray may not have lost the node yet, or an agent died once more
                    continue
                if self.payload.script is not None and passed_s < FENCE_S:
                    names = ", ".join(self.gang.configs[node].node_name for node in lost)
                    message = f"waiting {FENCE_S - passed_s:.0f} s: what ran on {names} may still write files"
                    self._telling.enter(SupervisorPhase.FENCE, None, message)
                    await self._intents.interruptible(asyncio.sleep(FENCE_S - passed_s), by_relocation=False)
                raise

    async def _adopt(self, last: Generation) -> GenerationMonitor | None:
        """Take up a generation that is alive and whole, or broken with evidence; None if it was never formed, or the
        incident that ended it is on record."""
        statuses = await self.gang.call_all(lambda agent: agent.status(), timeout_s=30)
        datasets = {node: status.dataset for node, status in statuses.items() if status.dataset}
        self.gang.node_facts.datasets.update(datasets)
        self._monitor, is_telling = found(last, statuses)
        incident = self._telling.incident
        if is_telling and (incident is None or incident.generation != last.number):
            self._telling.take_up(last)
            return self._monitor
        await self.gang.kill_ranks(last.number, ())
        return None

    async def _finish(self, end: Finished) -> None:
        number = self._generations.past[-1].number if self._generations.past else 0
        target = TERMINAL_BY_REASON[end.reason]
        if (incident := self._telling.incident) is not None and incident.recovery_action is not RecoveryAction.FAIL:
            incident.mark_job_end(time.time())
            await self._telling.revise(incident)
        until = await self.failure_hold.start(end, number)
        if target is not JobState.SUCCEEDED:
            message = end.message + (f"; its nodes are kept until {until}" if until else "")
            await self._telling.change(JobState.DRAINING, end.reason, message, generation=number, error=end.error)
        await self.gang.kill_ranks(max(1, number), ())
        await self._recovery.evidence.upload_pending()
        if until:
            self._telling.phase = SupervisorPhase.HELD
            await self.failure_hold.wait()
        self._telling.phase = SupervisorPhase.ENDED
        await self._telling.change(target, end.reason, end.message, generation=number, error=end.error)

    async def _release(self, message: str, reason: Reason) -> None:
        number = self._generations.past[-1].number if self._generations.past else 0
        self._telling.phase = SupervisorPhase.RELEASED
        await self._recovery.evidence.upload_pending()
        await self._telling.change(JobState.QUEUED, reason, message, generation=number)
