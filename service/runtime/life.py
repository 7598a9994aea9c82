"""A job's life as its supervisor runs it: one path for start, failure and end.

    end generation g → choose a source of state → write record g+1 → form → restore → first step

Nothing here knows Ray: agents, records and time come in as ports.
"""

import asyncio
import contextlib
import time
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from regroup.service.policy.recovery import Charge, Saved, Source, choose_source, judge
from regroup.service.runtime.checkpoints import Checkpoints
from regroup.service.runtime.gang import AgentError, AgentLostError, Gang
from regroup.service.runtime.generations import Generation, GenerationLog, SupersededError
from regroup.service.runtime.incidents import Incident
from regroup.service.runtime.journal import Journal
from regroup.service.runtime.payload import Payload
from regroup.service.runtime.watch import Watch
from regroup.service.states import BUDGET_BY_REASON, TERMINAL_BY_REASON, JobState, Reason
from regroup.workers.contract import Message, Note, StepRow, from_json, to_json

GANG_TIMEOUT_S = 120.0
LOST_S = 5.0
"""An agent silent for so long is lost (blueprint T_lost)."""
_INPUT_KINDS = frozenset(
    {
        "preload",
        "secret",
        "environment",
        "storage",
        "data",
        "DataError",
        "StorageError",
        "FileNotFoundError",
        "PermissionError",
        "InputError",
    }
)


class Ended(Exception):
    """The job is over: carried to the one place that says so."""

    def __init__(self, reason: Reason, message: str, error: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.error = reason, message, error


class Life:
    """Runs a job from its first generation to its end. `hear` and `intend` may be called at any time."""

    def __init__(self, payload: Payload, gang: Gang, generations: GenerationLog, journal: Journal) -> None:
        self.payload, self.gang, self.journal = payload, gang, journal
        self.phase = "agents"
        self.phases: dict[str, tuple[int, str]] = {}
        """Rank → (step, phase), as the agents last saw it."""
        self._generations = generations
        self._watch: Watch | None = None
        self._charges: list[Charge] = []
        self._incident: Incident | None = None
        self._end: Ended | None = None
        self._intended = asyncio.Event()
        self._state: JobState = JobState.STARTING
        self._step = 0
        self._heard_s: dict[str, float] = {}
        self._checkpoints = Checkpoints(payload, gang, journal)
        self._phases = 0
        gang.on_phase = self._say_phase

    # ------------------------------------------------------------ what comes in

    def intend(self, intents: Mapping[str, Any]) -> None:
        """Take the controller's intents: `{"cancel": true}` or `{"end": {"reason", "message"}}`."""
        if self._end is None and intents.get("cancel"):
            self._end = Ended(Reason.CANCELLED_BY_USER, "cancelled on request")
        elif self._end is None and (end := intents.get("end")):
            self._end = Ended(Reason(end["reason"]), end.get("message", ""))
        if self._end is not None:
            self._intended.set()
            if self._watch is not None:
                self._watch.changed.set()

    def beat(self, node_id: str) -> None:
        """An agent was heard of."""
        self._heard_s[node_id] = time.monotonic()

    def hear(self, node_id: str, message: Message) -> None:
        """Take one message of an agent."""
        if isinstance(message, StepRow):
            data = {key: value for key, value in to_json(message).items() if key not in ("type", "v")}
            self.journal.pass_on(
                f"step:{message.generation}:{message.step}", "step", message.generation, message.time_s, data
            )
            self._checkpoints.validation(message)
        elif isinstance(message, Note):
            if message.kind == "progress":
                self._say_phase("data", message.data.get("fraction"), message.data.get("message", ""))
            else:
                key = f"note:{node_id[:8]}:{message.kind}:{message.time_s}"
                self.journal.pass_on(
                    key, "note", message.generation, message.time_s, {"kind": message.kind, **message.data}
                )
        if self._watch is not None and getattr(message, "generation", None) == self._watch.generation.number:
            self._watch.hear(node_id, message)
            self._step = max(self._step, self._watch.step)

    def status(self) -> dict[str, Any]:
        """The present view, for the controller."""
        watch = self._watch
        return {
            "state": self._state.value,
            "phase": self.phase,
            "step": self._step,
            "generation": watch.generation.number if watch else 0,
            "ranks": self.phases,
            "incident": self._incident.to_json() if self._incident else None,
        }

    # ------------------------------------------------------------ the path

    async def run(self) -> None:
        """Live until the job has ended or the gang is given up. Returns; never raises."""
        try:
            await self._live()
        except SupersededError:
            return
        except Ended as end:
            await self._finish(end)
        except AgentLostError as error:
            await self._release(str(error))
        except Exception as error:
            await self._finish(
                Ended(
                    Reason.PLATFORM_ERROR,
                    f"{type(error).__name__}: {error}; please report this",
                    {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()},
                )
            )

    async def _live(self) -> None:
        await self._generations.load()
        past = await self.journal.replay()
        if any(event.type == "state" and JobState(event.data["state"]).is_terminal for event in past):
            return  # it ended; the controller has yet to hear so
        self._recall(past)
        adopted = None
        if self._generations.past:
            await self._gang_up()
            adopted = await self._adopt(self._generations.past[-1])
        else:
            await self._set_state(JobState.STARTING, Reason.GRANTED, "devices are held")
            await self._gang_up()
        if not self.gang.datasets:
            await self._prepare_data()
        if adopted is None:
            source = await self._choose(())
            adopted = await self._next_generation("restart" if self._generations.past else "start", source)
        watch = adopted
        while not await self._watch_over(watch):
            watch = await self._recover(watch)

    async def _gang_up(self) -> None:
        self._say_phase("agents", None, "bringing agents and zygotes up")
        try:
            await self._unless_ended(self.gang.up(GANG_TIMEOUT_S))
        except AgentError as error:
            raise Ended(Reason.INVALID_INPUT, str(error), _error(error)) from error
        now = time.monotonic()
        self._heard_s = dict.fromkeys(self.gang.configs, now)

    async def _prepare_data(self) -> None:
        if self.payload.sources is None:
            return
        try:
            await self._unless_ended(self.gang.prepare_data(self.payload.sources))
        except AgentError as error:
            raise Ended(Reason.INVALID_INPUT, str(error), _error(error)) from error

    async def _next_generation(self, cause: str, source: Source) -> Watch:
        """Write the record of the next generation, then fork its ranks."""
        self._say_phase("forming", None, "forming ranks")
        generation = await self._generations.create(
            Generation(0, self.payload.layout, self.payload.places(), source, cause)
        )
        watch = self._watch = Watch(generation, step=source.step)
        self._step = source.step
        await self.journal.write(
            f"generation:{generation.number}",
            "generation",
            generation.number,
            {
                "number": generation.number,
                "layout": asdict(generation.layout),
                "world_size": len(generation.ranks),
                "ranks": [asdict(place) for place in generation.ranks],
                "start_step": generation.start_step,
                "restore": asdict(source),
                "cause": cause,
            },
        )
        try:
            await self.gang.form(generation, self.payload.join())
        except AgentLostError as error:
            watch.lose(error.node_id, time.time())
        except AgentError as error:
            if error.kind in _INPUT_KINDS and source.kind != "checkpoint":
                raise Ended(Reason.INVALID_INPUT, str(error), _error(error)) from error
            if error.kind == "StorageError" or error.kind == "storage":
                self._checkpoints.distrust(source.uri)
            watch.lose(generation.nodes[0], time.time())
        return watch

    async def _watch_over(self, watch: Watch) -> bool:
        """Wait until the job is complete (True) or the generation is broken (False)."""
        number = watch.generation.number
        while True:
            watch.changed.clear()
            self._note_progress(watch)
            await self._announce_first_step(watch)
            for step in watch.whole_pins():
                self._checkpoints.begin(watch.generation, step, self._generations)
            for node in self._silent_nodes():
                watch.lose(node, time.time())
            if self._end is not None:
                raise self._end
            if watch.broken:
                return False
            if watch.complete:
                await self._checkpoints.settle()
                await self.gang.end(number, ())
                await self._set_state_running(watch)
                await self.journal.write("result", "result", number, {"step": watch.step, **watch.result()})
                raise Ended(Reason.COMPLETED, f"all {watch.step} steps committed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.changed.wait(), 0.5)

    async def _recover(self, watch: Watch) -> Watch:
        """The path from a broken generation to the next one."""
        seen_s = time.time()
        await self._set_state(
            JobState.RECOVERING,
            Reason.RANK_EXIT if not watch.losses else Reason.AGENT_LOST,
            "a generation ended",
            at=watch.generation.number,
        )
        self.phase = "recovering"
        lost = tuple(watch.losses)
        proofs = await self.gang.end(watch.generation.number, lost)
        for node, proof in proofs.items():
            self._take_last_words(node, proof)
        dead_s = time.time()
        lost = tuple({*lost, *(node for node, proof in proofs.items() if proof is None)})
        for node in lost:
            watch.lose(node, seen_s)
        cause = watch.cause()
        incident = self._incident = Incident(uuid.uuid4().hex[:12], watch.generation.number, cause, watch.step)
        for phase, time_s in (("fault_s", min(cause.time_s, seen_s)), ("seen_s", seen_s), ("dead_s", dead_s)):
            incident.passed(phase, time_s)
        verdict = judge(
            cause,
            self._charges,
            self.payload.budgets,
            window_s=self.payload.window_s,
            refill_steps=self.payload.refill_steps,
            now_s=seen_s,
            step=watch.step,
        )
        if not verdict.recover:
            incident.rung = "fail"
            await self._tell_incident()
            failure = cause.failure
            raise Ended(verdict.reason, verdict.message, asdict(failure) if failure else None)
        self._charges.append(Charge(BUDGET_BY_REASON[cause.reason], seen_s, watch.step))
        if verdict.backoff_s:
            self._say_phase("backoff", None, f"waiting {verdict.backoff_s:.1f} s before the next try")
            await self._unless_ended(asyncio.sleep(verdict.backoff_s))
        if lost:
            for node in lost:
                await self.gang.agents.kill(node)
            await self._gang_up()
        source = await self._choose(lost)
        incident.rung, incident.steps_lost = source.rung, max(0, watch.step - source.step)
        incident.passed("decided_s", time.time())
        following = await self._next_generation(cause.reason.value, source)
        incident.next_generation = following.generation.number
        await self._tell_incident()
        return following

    async def _adopt(self, last: Generation) -> Watch | None:
        """Take up a generation that is alive and whole; None if it must be ended, which is then done."""
        statuses = await self.gang.call_all("status", timeout_s=30)
        watch = Watch(last, step=last.start_step)
        self.gang.datasets = {node: status["dataset"] for node, status in statuses.items() if status.get("dataset")}
        for node, status in statuses.items():
            if status["generation"] != last.number:
                watch.lose(node, time.time())
            for item in status["said"]:
                watch.hear(node, from_json(item))
            missing = {place.rank for place in last.on(node)} - set(status["running"]) - set(watch.done)
            if missing:
                watch.lose(node, time.time())
        self._watch = watch
        if watch.broken and not (watch.failures or watch.exits):
            await self.gang.end(last.number, ())
            return None
        return watch

    # ------------------------------------------------------------ parts of it

    async def _choose(self, lost: tuple[str, ...]) -> Source:
        places = self.payload.places()
        shards, (saved, manifests) = await asyncio.gather(self.gang.shards(lost), self._scan())
        self._checkpoints.know(manifests)
        if not self._generations.past and self.payload.resume is not None:
            saved = [*saved, self.payload.resume]
        trusted = [item for item in saved if self._checkpoints.trusts(item.uri)]
        return choose_source(shards, trusted, self._generations.starts, {p.rank: p.node_id for p in places})

    async def _scan(self) -> tuple[list[Saved], list[dict[str, Any]]]:
        # A broken generation restores from memory first: what was saved by this supervisor is known without a scan.
        if self._checkpoints.scanned:
            return self._checkpoints.known()
        return await self.gang.saved()

    async def _finish(self, end: Ended) -> None:
        number = self._generations.past[-1].number if self._generations.past else 0
        target = TERMINAL_BY_REASON[end.reason]
        if target is not JobState.SUCCEEDED:
            await self._set_state(JobState.DRAINING, end.reason, end.message, at=number)
        await self.gang.end(max(1, number), ())
        self.phase = "ended"
        await self._set_state(target, end.reason, end.message, at=number, error=end.error)

    async def _release(self, message: str) -> None:
        number = self._generations.past[-1].number if self._generations.past else 0
        self.phase = "released"
        await self._set_state(JobState.QUEUED, Reason.RELEASED, f"the gang could not be held: {message}", at=number)

    async def _unless_ended(self, work: Any) -> Any:
        """Wait for `work`, but not longer than until the job is told to end."""
        task = asyncio.ensure_future(work)
        intended = asyncio.ensure_future(self._intended.wait())
        await asyncio.wait({task, intended}, return_when=asyncio.FIRST_COMPLETED)
        intended.cancel()
        if not task.done() and self._end is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise self._end
        return await task

    def _take_last_words(self, node: str, proof: Mapping[str, Any] | None) -> None:
        if proof is not None and "report" in proof:
            for _, item in proof["report"]["messages"]:
                message = from_json(item)
                if (
                    not isinstance(message, StepRow | Note)
                    and self._watch is not None
                    and getattr(message, "generation", None) == self._watch.generation.number
                ):
                    self._watch.hear(node, message)

    def _silent_nodes(self) -> list[str]:
        now = time.monotonic()
        return [node for node, heard in self._heard_s.items() if now - heard > LOST_S]

    def _note_progress(self, watch: Watch) -> None:
        incident = self._incident
        if incident is None or incident.next_generation != watch.generation.number:
            return
        world = len(watch.generation.ranks)
        if len(watch.joined) == world:
            incident.passed("formed_s", max(watch.joined.values()))
        if len(watch.restored) == world:
            incident.passed("restored_s", max(watch.restored.values()))

    async def _announce_first_step(self, watch: Watch) -> None:
        if watch.first_step_s is None or self._state is JobState.RUNNING:
            return
        await self._set_state_running(watch)
        if (incident := self._incident) is not None and incident.next_generation == watch.generation.number:
            incident.passed("first_step_s", watch.first_step_s)
            await self._tell_incident()
            self._incident = None

    async def _set_state_running(self, watch: Watch) -> None:
        self.phase = "training"
        await self._set_state(
            JobState.RUNNING,
            Reason.FIRST_STEP,
            f"generation {watch.generation.number} trains",
            at=watch.generation.number,
        )

    async def _set_state(
        self, state: JobState, reason: Reason, message: str, *, at: int = 0, error: Mapping[str, Any] | None = None
    ) -> None:
        self._state = state
        key = f"state:{at}:{state.value}" if not state.is_terminal else "state:end"
        if state is JobState.QUEUED or (state is JobState.STARTING and self.payload.attempt):
            key += f":{self.payload.attempt}"
        data: dict[str, Any] = {"state": state.value, "reason": reason.value, "message": message}
        await self.journal.write(key, "state", at, {**data, "error": dict(error)} if error else data)

    async def _tell_incident(self) -> None:
        incident = self._incident
        assert incident is not None
        incident.revision += 1
        await self.journal.write(
            f"incident:{incident.id}:{incident.revision}", "incident", incident.generation, incident.to_json()
        )

    def _say_phase(self, phase: str, fraction: float | None, message: str) -> None:
        self.phase = phase
        self._phases += 1
        self.journal.pass_on(
            f"phase:{self.journal.boot_id[:8]}:{self._phases}",
            "phase",
            self._watch.generation.number if self._watch else 0,
            time.time(),
            {"phase": phase, "fraction": fraction, "message": message},
        )

    def _recall(self, past: Any) -> None:
        """Charges of earlier lives, so that a restart forgives nothing."""
        incidents = {event.data["id"]: event for event in past if event.type == "incident"}
        for event in incidents.values():
            if (budget := BUDGET_BY_REASON.get(Reason(event.data["reason"]))) is not None:
                self._charges.append(Charge(budget, event.data["times"]["seen_s"], event.data["at_step"]))
        states = [event for event in past if event.type == "state"]
        if states:
            self._state = JobState(states[-1].data["state"])


def _error(error: AgentError) -> dict[str, Any]:
    return {"kind": error.kind, "message": str(error), "traceback": error.traceback}
