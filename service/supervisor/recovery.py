"""From a broken generation to the source of the next one: kill with proof, classify, charge, choose."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from regroup.service.domain.job_events import IncidentRevised, RecoveryAction, StateChanged, SupervisorPhase, decoded
from regroup.service.domain.states import PLANNED_REASONS, JobState, Reason
from regroup.service.policy.detection.loss_spike import BUDGET, loss_spike_config
from regroup.service.policy.recovery.budget import Charge, RecoveryDecision, budget_of, decide_recovery
from regroup.service.policy.recovery.classify import Cause
from regroup.service.policy.recovery.drain_deadlines import excuse_announced_loss
from regroup.service.policy.recovery.restore_source import (
    RestoreKind,
    RestoreSource,
    Shard,
    choose_restore_source,
    find_diverged_sets,
)
from regroup.service.ports.agents import AgentError
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.checkpoints import Checkpoints
from regroup.service.supervisor.event_log import EventLog
from regroup.service.supervisor.evidence import Evidence
from regroup.service.supervisor.gang import Gang
from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation, GenerationLog
from regroup.service.supervisor.incidents import Incident
from regroup.service.supervisor.job_config import JobConfig
from regroup.service.supervisor.rank_inspection import inspect_ranks
from regroup.workers.contract.agent_records import DeathProof
from regroup.workers.contract.messages import Failed, Join, Note, StepRow, from_json
from regroup.workers.contract.rank_error import ErrorClass, RankError

_SCAN_SOON_S = 3.0
"""Storage that takes longer is waited for only if memory holds no whole set."""


class Finished(Exception):
    """The job is over: carried to the one place that says so."""

    def __init__(self, reason: Reason, message: str, error: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.error = reason, message, error


class RecoveryRun:
    """Holds the job's charges; acts through the gang, tells as it goes."""

    def __init__(
        self, payload: JobConfig, gang: Gang, generations: GenerationLog, checkpoints: Checkpoints, telling: EventLog
    ) -> None:
        self._payload, self._gang, self._generations = payload, gang, generations
        self._checkpoints, self._telling = checkpoints, telling
        self.evidence = Evidence(gang, telling, self._nodes_of)
        self.announced: dict[str, str] = {}
        """Node id → what was said of its leaving: that it does is charged to nothing."""
        self._charges: dict[str, Charge] = {}
        """Of each incident, by its id."""
        self._spikes: dict[int, tuple[str, float]] = {}
        """Step that is done again because its loss stood out → the largest that would not have."""

    def replay(self, past: Sequence[SupervisorEvent]) -> Finished | None:
        """Charges of earlier lives of this supervisor, so that a restart forgives nothing, and evidence not left yet;
        returns the end that the last one had begun. Call it when the open incident has been recalled."""
        self.evidence.replay(past)
        incidents = {event.id: event for event in decoded(past, IncidentRevised)}
        for event in incidents.values():
            if (budget := budget_of(event.reason, self._payload.budgets)) is not None:
                self._charges[event.id] = Charge(budget, event.times["seen_s"], event.at_step)
            self._note_spike(event.reason, (event.evidence or {}).get("details"))
        states = decoded(past, StateChanged)
        if not states or states[-1].state is not JobState.DRAINING:
            return None
        return Finished(states[-1].reason, states[-1].message, states[-1].error)

    async def is_job_ending(self, watch: GenerationMonitor) -> bool:
        """Whether the job will not go on after this generation, as far as is known before its ranks are ended. If so,
        nobody waits for a recovery: those that still live are asked where they are."""
        watch.detected_s = time.time()
        cause = excuse_announced_loss(watch.classify(), self.announced)
        if self._decide_with(cause, watch.detected_s, watch.step, self._charges.values()).is_recovery:
            return False
        if watch.detected_cause is None:
            watch.places = await inspect_ranks(self._gang, without=watch.losses)
        return True

    async def end_generation(self, watch: GenerationMonitor) -> tuple[Incident, RecoveryDecision, Sequence[str]]:
        """Open the incident of a broken generation, on record before anything is done about it, and end the generation
        with proof; returns the lost nodes beside the verdict."""
        seen_s = watch.detected_s
        incident = self._telling.incident = Incident(
            uuid.uuid4().hex[:12],
            watch.generation.number,
            excuse_announced_loss(watch.classify(), self.announced),
            watch.step,
        )
        incident.mark_detected(seen_s)
        await self._telling.revise(incident)
        proofs = await self._gang.kill_ranks(watch.generation.number, tuple(watch.losses))
        dead_s = time.time()
        for node, proof in proofs.items():
            if proof is None:
                watch.record_loss(node, seen_s)
                continue
            _receive_last_messages(watch, node, proof)
            if proof.stuck:
                said = {"pids": list(proof.stuck), "node": self._gang.configs[node].node_name}
                self._telling.note(node, Note(watch.generation.number, "stuck", said, time.time()))
        incident.cause, incident.at_step = await self._excuse_planned_end(watch.classify()), watch.step
        incident.mark_detected(seen_s)
        incident.mark_phase("dead_s", dead_s)
        self.evidence.add(incident)
        return incident, await self.decide(incident), tuple(watch.losses)

    async def decide(self, incident: Incident) -> RecoveryDecision:
        """Whether the job goes on after an incident, which an earlier life of this supervisor may have left open. It is
        charged once."""
        cause, seen_s = incident.cause, incident.times["seen_s"]
        is_planned = cause.reason in PLANNED_REASONS and self._telling.state in (JobState.RUNNING, JobState.RESIZING)
        state = JobState.RESIZING if is_planned else JobState.RECOVERING
        self._telling.phase = SupervisorPhase.RECOVERING
        news = [self._telling.revise(incident)]
        if self._telling.state is not JobState.QUEUED:  # since the incident it queued, and it starts now
            news.append(self._telling.change(state, cause.reason, cause.summary, generation=incident.generation))
        await asyncio.gather(*news)  # side by side: the recovery waits for both records
        before = [charge for key, charge in self._charges.items() if key != incident.id]
        verdict = self._decide_with(cause, seen_s, incident.at_step, before)
        budget = budget_of(cause.reason, self._payload.budgets)
        if verdict.is_recovery and budget is not None:
            self._charges[incident.id] = Charge(budget, seen_s, incident.at_step)
            self._note_spike(cause.reason, cause.failure.details if cause.failure else None)
        elif not verdict.is_recovery:
            incident.recovery_action = RecoveryAction.FAIL
            await self._telling.revise(incident)
        return verdict

    def join_message(self) -> Join:
        """What a JOIN says that is the same for every rank of the next generation."""
        join, recovery = self._payload.join_message(), self._payload.spec.recovery
        if join.config.script is not None:
            return join
        rule = loss_spike_config(
            join.config.loss_spike.action,
            self._spikes,
            self._in_order(self._charges.values()),
            self._payload.budgets[BUDGET],
            window_s=recovery.window,
            refill_steps=recovery.refill_steps,
            now_s=time.time(),
            step=max(self._generations.starts.values(), default=0),
        )
        return replace(join, config=replace(join.config, loss_spike=rule))

    async def choose_source(self, lost: Sequence[str], reached: int) -> RestoreSource:
        """The newest state the next generation can start from. A script, which keeps its own, is thought to go on from
        the step it had `reached` until it says otherwise.

        Raises:
            Ended: the job was to go on from a checkpoint that cannot be loaded, and has no state of its own.
        """
        if self._payload.script is not None:
            return RestoreSource(RestoreKind.NONE, reached)
        shards, error = await asyncio.gather(self._gang.list_shards(lost), self._scan_briefly())
        for generation, step in find_diverged_sets(shards):
            message = f"ranks differ in what they should hold alike after step {step}: nothing is restored from that"
            note = Note(generation, "snapshot_refused", {"step": step, "message": message}, time.time())
            self._telling.note("", note)
        source = self._choose_newest(shards)
        if source.kind is not RestoreKind.MEMORY:
            await self._scan(error)
            source = self._choose_newest(shards)
        elif not self._checkpoints.scanned:
            message = f"durable storage did not answer: step {source.step} is restored from memory without a look there"
            self._telling.note("", Note(source.generation, "storage_unavailable", {"message": message}, time.time()))
        resume = self._payload.resume
        if (
            resume is not None and source.kind is RestoreKind.NONE
        ):  # starting anew would be another job than was asked for
            why = self._checkpoints.why_excluded(resume.uri)
            raise Finished(Reason.INVALID_INPUT, f"cannot go on from what `resume_from` names: {why}")
        return source

    def _choose_newest(self, shards: Sequence[Shard]) -> RestoreSource:
        """By what is known now."""
        known, resume, layout = self._checkpoints.finished(), self._payload.resume, self._payload.layout
        saved = [*known, resume] if resume is not None else known
        trusted = [item for item in saved if self._checkpoints.is_usable(item.uri)]
        nodes = {place.rank: place.node_id for place in self._payload.places()}
        others = {each.number for each in self._generations.past if each.layout != layout}
        return choose_restore_source(shards, trusted, self._generations.starts, nodes, others)

    async def wait_for_storage(self, error: AgentError) -> None:
        """Durable storage did not answer: charge it, and wait before it is asked again.

        Raises:
            Ended: it was asked as often as its budget allows.
        """
        now_s, step = time.time(), max(self._generations.starts.values(), default=0)
        cause = Cause(Reason.IO_ERROR, str(error), now_s, None, error.node_id)
        verdict = self._decide_with(cause, now_s, step, self._charges.values())
        if not verdict.is_recovery:
            raise Finished(verdict.reason, verdict.message)
        self._charges[f"storage at {now_s}"] = Charge("io_error", now_s, step)
        self._telling.enter(
            SupervisorPhase.STORAGE, None, f"asking storage again in {verdict.backoff_s:.1f} s: {error}"
        )
        await asyncio.sleep(verdict.backoff_s)

    def _nodes_of(self, generation: int) -> dict[str, str]:
        formed = (each for each in self._generations.past if each.number == generation)
        return {place.node_id: place.node_name for each in formed for place in each.ranks}

    async def _scan_briefly(self) -> AgentError | None:
        """Look through durable storage if it answers: what is in memory is not to wait for it. Why it refused."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SCAN_SOON_S):
                    await self._checkpoints.scan()
        except AgentError as error:
            return error
        return None

    async def _scan(self, refused: AgentError | None) -> None:
        while not self._checkpoints.scanned:
            if refused is not None:
                await self.wait_for_storage(refused)
            try:
                await self._checkpoints.scan()
            except AgentError as error:
                refused = error

    async def _excuse_planned_end(self, cause: Cause) -> Cause:
        """The agent of a node that leaves may have said so with its last breath."""
        if cause.reason is Reason.AGENT_LOST and (said := await self._gang.agents.planned_end(cause.node_id or "")):
            self.announced.setdefault(cause.node_id or "", said)
        return excuse_announced_loss(cause, self.announced)

    def _decide_with(self, cause: Cause, now_s: float, step: int, charges: Iterable[Charge]) -> RecoveryDecision:
        payload = self._payload
        return decide_recovery(
            cause,
            self._in_order(charges),
            payload.budgets,
            window_s=payload.window_s,
            refill_steps=payload.refill_steps,
            now_s=now_s,
            step=step,
        )

    def _note_spike(self, reason: str, details: Mapping[str, Any] | None) -> None:
        if reason == Reason.LOSS_SPIKE and details:
            self._spikes[int(details["step"])] = str(details.get("of", "loss")), float(details["limit"])

    @staticmethod
    def _in_order(charges: Iterable[Charge]) -> Sequence[Charge]:
        return sorted(charges, key=lambda charge: charge.time_s)


def failure_json(incident: Incident) -> Mapping[str, Any] | None:
    """The exception behind an incident, as plain data."""
    return asdict(incident.cause.failure) if incident.cause.failure else None


def _receive_last_messages(watch: GenerationMonitor, node: str, proof: DeathProof) -> None:
    """What the ranks still said before they were killed; step rows come again with the agent's next report."""
    for _, item in proof.report.messages:
        message = from_json(item)
        if getattr(message, "generation", None) != watch.generation.number:
            continue
        if isinstance(message, StepRow):
            watch.step = max(watch.step, message.step)
        else:
            watch.receive(node, message)


def restore_failure(error: AgentError, generation: Generation) -> Failed:
    """A checkpoint that a node could not load, as its first rank would have said it."""
    rank = generation.on(error.node_id)[0].rank
    said = RankError(
        ErrorClass.IO, error.kind, str(error), error.traceback, generation.start_step, "restore", time.time()
    )
    return Failed(rank, generation.number, said)


def input_error(error: AgentError) -> Finished:
    """What an agent found wrong that a person has to mend: the end of the job."""
    trace = {"kind": error.kind, "message": str(error), "traceback": error.traceback}
    return Finished(Reason.INVALID_INPUT, str(error), trace)
