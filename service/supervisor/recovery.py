"""Recovery: kill the ranks of a broken generation, classify the cause, charge a budget, choose a restore source."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from regroup.service.domain.job_events import (
    IncidentRevised,
    NoteRecorded,
    RecoveryAction,
    StateChanged,
    decoded,
)
from regroup.service.domain.states import PLANNED_REASONS, JobState, Reason
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.policy.detection.loss_spike import BUDGET, loss_spike_config
from regroup.service.policy.recovery.budget import Charge, RecoveryDecision, budget_of, decide_recovery
from regroup.service.policy.recovery.classify import Cause, RankFailure
from regroup.service.policy.recovery.drain_deadlines import excuse_announced_loss
from regroup.service.policy.recovery.restore_source import (
    NodeSet,
    RestoreKind,
    RestoreSource,
    choose_restore_source,
    find_diverged_sets,
)
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.gang import held_shards
from regroup.service.supervisor.gang.checkpoints import Checkpoints
from regroup.service.supervisor.gang.evidence import Evidence
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.rank_inspection import inspect_ranks
from regroup.service.supervisor.job_state.event_log import START_FAILED, EventLog
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.service.supervisor.job_state.outcomes import Finished
from regroup.service.supervisor.job_state.supervisor_state import SupervisorState
from regroup.workers.contract.agent_records import AgentErrorKind, DeathProof
from regroup.workers.contract.messages import Failed, Join, Note, StepRow, from_json
from regroup.workers.contract.rank_error import ErrorClass, RankError

_CAUSE_WAIT_S = 0.1
"""Longest time in seconds to wait for the cause while only consequences of it were reported."""
_SCAN_SOON_S = 3.0
"""Longest time in seconds to wait for storage while memory contains a complete set."""


class RecoveryRun:
    """Charges the job's budgets, ends broken generations and chooses restore sources."""

    def __init__(
        self,
        payload: JobConfig,
        gang: Gang,
        generations: GenerationLog,
        checkpoints: Checkpoints,
        state: SupervisorState,
        log: EventLog,
    ) -> None:
        self._payload, self._gang, self._generations = payload, gang, generations
        self._checkpoints, self._state, self._log = checkpoints, state, log
        self.evidence = Evidence(gang, state, self._nodes_of)
        self.announced: dict[str, str] = {}
        """Node id → reason of its announced removal, which is not charged to a budget."""
        self._charges: dict[str, Charge] = {}
        """Incident id → its charge."""
        self._spikes: dict[int, tuple[str, float]] = {}
        """Step that is repeated because of its loss spike → metric, and the largest value that would be no spike."""

    def replay(self, past: Sequence[SupervisorEvent]) -> Finished | None:
        """Restore charges and pending evidence of earlier incarnations, so that a restart clears no charge.

        Call it after the state's `replay`.

        Returns:
            The end of the job that the last incarnation had started, or None.
        """
        self.evidence.replay(past)
        incidents = {event.id: event for event in decoded(past, IncidentRevised)}
        for event in incidents.values():
            if (budget := budget_of(event.reason, self._payload.budgets)) is not None:
                failure = Incident.from_event(event).cause.failure
                self._charges[event.id] = _charge_of(budget, event.times["seen_s"], event.at_step, failure)
            self._record_spike(event.reason, (event.evidence or {}).get("details"))
        for note in decoded(past, NoteRecorded):
            if note.kind == START_FAILED:
                charge = note.data["charge"]
                self._charges[f"start at {charge['time_s']}"] = Charge(**charge)
        states = decoded(past, StateChanged)
        if not states or states[-1].state is not JobState.DRAINING:
            return None
        return Finished(states[-1].reason, states[-1].message, states[-1].error)

    async def charge_failed_start(self, error: AgentLostError, attempt: int) -> RecoveryDecision:
        """Charge a start of the job at which an agent did not come up, and decide whether the job may queue again."""
        now_s, step = time.time(), max(self._generations.starts.values(), default=0)
        cause = await self._excuse_planned_end(Cause(Reason.AGENT_LOST, str(error), now_s, None, error.node_id))
        decision = self._decide_with(cause, now_s, step, self._charges.values())
        if (budget := budget_of(cause.reason, self._payload.budgets)) is not None:
            charge = {"budget": budget, "time_s": now_s, "step": step}
            await self._log.record_failed_start(attempt, str(error), charge)
        return decision

    async def is_job_ending(self, monitor: GenerationMonitor) -> bool:
        """Return whether the job ends with this generation, as far as is known before its ranks are killed.

        If it ends, inspect the ranks that are still alive, because no recovery is delayed by that.
        """
        monitor.detected_s = time.time()
        await _wait_for_cause(monitor)
        cause = excuse_announced_loss(monitor.classify(), self.announced)
        if self._decide_with(cause, monitor.detected_s, monitor.step, self._charges.values()).is_recovery:
            return False
        if monitor.detected_cause is None:
            monitor.places = await inspect_ranks(self._gang, without=monitor.losses)
        return True

    async def end_generation(
        self, monitor: GenerationMonitor
    ) -> tuple[Incident, RecoveryDecision, Sequence[str], Sequence[NodeSet] | None]:
        """Record the incident of a broken generation, then kill its ranks with proof.

        Returns:
            The incident, the recovery decision, the lost nodes and the state in the memory of the nodes. That is None
            if the nodes must list it again: a node was lost, or the job has just left some.
        """
        detected_s = monitor.detected_s
        incident = Incident(
            uuid.uuid4().hex[:12],
            monitor.generation.number,
            excuse_announced_loss(monitor.classify(), self.announced),
            monitor.step,
        )
        incident.mark_detected(detected_s)
        self._state.open_incident(incident)
        await self._state.revise(incident)
        number, for_restore = monitor.generation.number, self._payload.script is None
        proofs = await self._gang.kill_ranks(number, tuple(monitor.losses), for_restore=for_restore)
        found = {node: proof for node, proof in proofs.items() if proof is not None}
        dead_s = time.time() - min((proof.since_s for proof in found.values()), default=0.0)
        for node, proof in proofs.items():
            if proof is None:
                monitor.record_loss(node, detected_s)
                continue
            _receive_last_messages(monitor, node, proof)
            if proof.stuck:
                data = {"pids": list(proof.stuck), "node": self._gang.configs[node].node_name}
                self._log.emit_note(node, Note(monitor.generation.number, "stuck", data, time.time()))
        incident.cause, incident.at_step = await self._excuse_planned_end(monitor.classify()), monitor.step
        incident.mark_detected(detected_s)
        incident.mark_phase("dead_s", dead_s)
        self.evidence.add(incident)
        is_complete = not (monitor.losses or self._gang.former)
        held = [NodeSet(node, each) for node, proof in found.items() for each in proof.held] if is_complete else None
        return incident, await self.decide(incident), tuple(monitor.losses), held

    async def decide(self, incident: Incident) -> RecoveryDecision:
        """Decide whether the job recovers from an incident, and charge the incident once.

        An earlier incarnation of this supervisor may have opened the incident.
        """
        cause, detected_s = incident.cause, incident.times["seen_s"]
        is_planned = cause.reason in PLANNED_REASONS and self._state.state in (JobState.RUNNING, JobState.RESIZING)
        state = JobState.RESIZING if is_planned else JobState.RECOVERING
        self._state.set_phase(SupervisorPhase.RECOVERING)
        records = [self._state.revise(incident)]
        if self._state.state is not JobState.QUEUED:  # QUEUED: the job queued after the incident and starts now
            records.append(self._state.change(state, cause.reason, cause.summary, generation=incident.generation))
        await asyncio.gather(*records)  # concurrent, because the recovery waits for both
        earlier = [charge for key, charge in self._charges.items() if key != incident.id]
        decision = self._decide_with(cause, detected_s, incident.at_step, earlier)
        budget = budget_of(cause.reason, self._payload.budgets)
        if decision.is_recovery and budget is not None:
            self._charges[incident.id] = _charge_of(budget, detected_s, incident.at_step, cause.failure)
            self._record_spike(cause.reason, cause.failure.details if cause.failure else None)
        elif not decision.is_recovery:
            incident.recovery_action = RecoveryAction.FAIL
            await self._state.revise(incident)
        return decision

    def join_message(self, payload: JobConfig) -> Join:
        """Return a JOIN with the fields that are the same for every rank of the next generation.

        Args:
            payload: configuration of the job, with the nodes and the layout of that generation.
        """
        join, recovery = payload.join_message(), payload.spec.recovery
        if join.config.script is not None:
            return join
        rule = loss_spike_config(
            join.config.loss_spike.action,
            self._spikes,
            self._sorted_by_time(self._charges.values()),
            self._payload.budgets[BUDGET],
            window_s=recovery.window,
            refill_steps=recovery.refill_steps,
            now_s=time.time(),
            step=max(self._generations.starts.values(), default=0),
        )
        return replace(join, config=replace(join.config, loss_spike=rule))

    async def choose_source(self, reached: int, held: Sequence[NodeSet] | None = None) -> RestoreSource:
        """Choose the newest state from which the next generation can start.

        Args:
            reached: step at which a script is assumed to resume, until it reports its step: it saves its own state.
            held: the state in the memory of the nodes; None: they list it.

        Raises:
            Finished: the checkpoint in `resume_from` cannot be loaded, and the job has no state of its own.
        """
        if self._payload.script is not None:
            return RestoreSource(RestoreKind.NONE, reached)
        sets, error = await asyncio.gather(self._list_sets(held), self._scan_briefly())
        for generation, step in find_diverged_sets(sets):
            message = f"replicas of the same state differ between ranks after step {step}; that step is not restored"
            note = Note(generation, "snapshot_refused", {"step": step, "message": message}, time.time())
            self._log.emit_note("", note)
        source, sets = await self._choose_intact(sets)
        if source.kind is not RestoreKind.MEMORY:
            await self._scan(error)
            source, _ = await self._choose_intact(sets)
        elif not self._checkpoints.scanned:
            message = (
                f"durable storage did not respond; step {source.step} is restored from memory "
                "without a check for newer checkpoints"
            )
            self._log.emit_note("", Note(source.generation, "storage_unavailable", {"message": message}, time.time()))
        resume = self._payload.resume
        if resume is not None and source.kind is RestoreKind.NONE:  # a start from step 0 would ignore the request
            why = self._checkpoints.why_excluded(resume.uri)
            raise Finished(Reason.INVALID_INPUT, f"cannot resume from the checkpoint in `resume_from`: {why}")
        return source

    async def _list_sets(self, held: Sequence[NodeSet] | None) -> Sequence[NodeSet]:
        return await self._gang.list_shards() if held is None else held

    async def _choose_intact(self, sets: Sequence[NodeSet]) -> tuple[RestoreSource, Sequence[NodeSet]]:
        """Choose a source, of whose shards each was read. Return it and the sets without damaged shards.

        Only nodes whose part of the chosen set is not verified get a call to read it.
        """
        while True:
            source = self._choose_newest(sets)
            chosen = source.generation, source.step
            if source.kind is not RestoreKind.MEMORY:
                return source, sets
            unread = {each.node_id for each in sets if each.name == chosen and not each.held.is_verified}
            if not unread:
                return source, sets
            intact = await held_shards.verify(self._gang.agents, sorted(unread), *chosen)
            sets = [each for each in sets if each.name != chosen or each.node_id not in unread] + intact

    def _choose_newest(self, sets: Sequence[NodeSet]) -> RestoreSource:
        """Choose the source from the sets in memory and the checkpoints found so far."""
        finished, resume, layout = self._checkpoints.finished(), self._payload.resume, self._payload.layout
        saved = [*finished, resume] if resume is not None else finished
        trusted = [item for item in saved if self._checkpoints.is_usable(item.uri)]
        nodes = self._payload.places.node_ids()
        other_layouts = {each.number for each in self._generations.past if each.layout != layout}
        return choose_restore_source(sets, trusted, self._generations.starts, nodes, other_layouts)

    async def wait_for_storage(self, error: AgentError) -> None:
        """Charge an attempt at which storage did not respond, and wait for the backoff.

        Raises:
            Finished: the budget for storage errors is used up.
        """
        now_s, step = time.time(), max(self._generations.starts.values(), default=0)
        cause = Cause(Reason.IO_ERROR, str(error), now_s, None, error.node_id)
        decision = self._decide_with(cause, now_s, step, self._charges.values())
        if not decision.is_recovery:
            raise Finished(decision.reason, decision.message)
        self._charges[f"storage at {now_s}"] = Charge("io_error", now_s, step)
        self._state.enter_phase(
            SupervisorPhase.STORAGE, None, f"retrying storage in {decision.backoff_s:.1f} s: {error}"
        )
        await asyncio.sleep(decision.backoff_s)

    def _nodes_of(self, generation: int) -> dict[str, str]:
        formed = (each for each in self._generations.past if each.number == generation)
        return {node.node_id: node.node_name for each in formed for node in each.ranks.nodes}

    async def _scan_briefly(self) -> AgentError | None:
        """Scan durable storage for a short time, because state in memory must not wait for it. Return its error."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SCAN_SOON_S):
                    await self._checkpoints.scan()
        except AgentError as error:
            return error
        return None

    async def _scan(self, error: AgentError | None) -> None:
        while not self._checkpoints.scanned:
            if error is not None:
                await self.wait_for_storage(error)
            try:
                await self._checkpoints.scan()
            except AgentError as next_error:
                error = next_error

    async def _excuse_planned_end(self, cause: Cause) -> Cause:
        """Excuse the loss of an agent that announced the planned removal of its node before it stopped."""
        if cause.reason is Reason.AGENT_LOST and (why := await self._gang.agents.planned_end(cause.node_id or "")):
            self.announced.setdefault(cause.node_id or "", why)
        return excuse_announced_loss(cause, self.announced)

    def _decide_with(self, cause: Cause, now_s: float, step: int, charges: Iterable[Charge]) -> RecoveryDecision:
        payload = self._payload
        return decide_recovery(
            cause,
            self._sorted_by_time(charges),
            payload.budgets,
            window_s=payload.window_s,
            refill_steps=payload.refill_steps,
            now_s=now_s,
            step=step,
        )

    def _record_spike(self, reason: str, details: Mapping[str, Any] | None) -> None:
        if reason == Reason.LOSS_SPIKE and details:
            self._spikes[int(details["step"])] = str(details.get("of", "loss")), float(details["limit"])

    @staticmethod
    def _sorted_by_time(charges: Iterable[Charge]) -> Sequence[Charge]:
        return sorted(charges, key=lambda charge: charge.time_s)


def failure_json(incident: Incident) -> Mapping[str, Any] | None:
    """Return the exception that caused an incident as plain data, or None."""
    return asdict(incident.cause.failure) if incident.cause.failure else None


def _charge_of(budget: str, time_s: float, step: int, failure: RankFailure | None) -> Charge:
    return Charge(budget, time_s, step, None if failure is None else failure.step)


async def _wait_for_cause(monitor: GenerationMonitor) -> None:
    """Wait briefly if ranks lost contact to another one whose end has not been reported yet.

    Its report often arrives some milliseconds later. Without it, an error of the code looks like the death of a rank:
    the other ranks are killed for a restart that never happens, and with them the evidence.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CAUSE_WAIT_S):
            while not monitor.is_explained:
                monitor.changed.clear()
                await monitor.changed.wait()


def _receive_last_messages(monitor: GenerationMonitor, node: str, proof: DeathProof) -> None:
    """Process the last messages of killed ranks. The agent's next report contains their step rows again."""
    for _, item in proof.report.messages:
        message = from_json(item)
        if getattr(message, "generation", None) != monitor.generation.number:
            continue
        if isinstance(message, StepRow):
            monitor.step = max(monitor.step, message.step)
        else:
            monitor.receive(node, message)


def restore_failure(error: AgentError, generation: Generation) -> Failed:
    """Return the failure to load a checkpoint as if the node's first rank had reported it."""
    rank = generation.on(error.node_id)[0].rank
    rank_error = RankError(
        ErrorClass.IO, error.kind, str(error), error.traceback, generation.start_step, "restore", time.time()
    )
    return Failed(rank, generation.number, rank_error)


def start_outcome(error: AgentError) -> Exception:
    """Return the meaning of an error during the start of a job: its end, or the loss of the node."""
    if error.kind is AgentErrorKind.NODE:
        return AgentLostError(error.node_id, str(error))
    if error.kind is AgentErrorKind.BUG:
        trace = {"kind": error.kind, "message": str(error), "traceback": error.traceback}
        return Finished(Reason.PLATFORM_ERROR, f"{error}; please report this", trace)
    return input_error(error)


def input_error(error: AgentError) -> Finished:
    """Return the end of a job whose inputs are missing or invalid. A person must fix them."""
    trace = {"kind": error.kind, "message": str(error), "traceback": error.traceback}
    return Finished(Reason.INVALID_INPUT, str(error), trace)
