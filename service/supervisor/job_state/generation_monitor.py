"""Evidence about the running generation, from the messages of its agents."""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.detectors import Detector
from regroup.service.policy.detection.desync import add_desync_evidence, entered_collectives
from regroup.service.policy.recovery.classify import (
    AgentLoss,
    Cause,
    ProcessExit,
    RankFailure,
    blame_device,
    classify_failure,
    is_explained,
)
from regroup.service.policy.recovery.restore_source import RestoreKind, find_differing
from regroup.service.supervisor.job_state.generations import Generation, PinnedSet
from regroup.workers.contract.agent_records import AgentStatus
from regroup.workers.contract.error_classes import CheckpointDamagedError
from regroup.workers.contract.messages import (
    Done,
    Exited,
    Failed,
    Joined,
    Message,
    Note,
    Pinned,
    PinnedFor,
    Restored,
    StateDigest,
    StepRow,
    from_json,
)


@dataclass
class GenerationMonitor:
    """Collects evidence; `changed` is set with every message that may matter."""

    generation: Generation
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    joined: dict[int, float] = field(default_factory=dict[int, float])
    restored: dict[int, float] = field(default_factory=dict[int, float])
    program_start: Restored | None = None
    """Start of the leading rank; None before the first step of a program."""
    done: dict[int, Done] = field(default_factory=dict[int, Done])
    failures: list[RankFailure] = field(default_factory=list[RankFailure])
    exits: list[ProcessExit] = field(default_factory=list[ProcessExit])
    losses: dict[str, AgentLoss] = field(default_factory=dict[str, AgentLoss])
    detected_cause: Cause | None = None
    """The cause, if the generation hangs or ended by plan."""
    detected_s: float = 0.0
    """Unix seconds at which it was found to be broken."""
    raised: dict[int, list[dict[str, Any]]] = field(default_factory=dict[int, list[dict[str, Any]]])
    """Rank that raised → the collectives that it had entered, if one of them did."""
    places: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Rank → its place at the last inspection; empty if there was none."""
    pinned: dict[int, dict[int, Pinned]] = field(default_factory=dict[int, dict[int, Pinned]])
    """Step → ranks that retain it for a checkpoint, with their messages."""
    mirrored: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """Step → ranks that retain it for mirrors."""
    short_of_memory: dict[str, str] = field(default_factory=dict[str, str])
    """Node → its newest, unprocessed report of a memory shortage; empty text: the shortage has ended."""
    broken_devices: dict[str, str] = field(default_factory=dict[str, str])
    """Node → the driver's message about a broken device there."""
    killed_at_s: float | None = None
    """Monotonic time in seconds at which ranks are killed that got SIGTERM at a planned end; None: they got none."""
    is_termination_reported: bool = False
    ended: set[int] = field(default_factory=set[int])
    """Ranks that ended after SIGTERM, in whatever way."""
    digests: dict[int, dict[int, Mapping[str, str]]] = field(default_factory=dict[int, dict[int, Mapping[str, str]]])
    """Step → rank → digests of its state, for the restart check."""
    first_step_s: float | None = None
    step: int = 0
    """Newest committed step that was reported."""
    disable_detectors: Collection[Detector] = ()
    """Detectors that a fault rehearsal disables."""

    def receive(self, node_id: str, message: Message) -> None:
        """Process one message of this generation."""
        match message:
            case Exited() if message.rank >= 0 and (message.terminated or self.killed_at_s is not None):
                self.ended.add(message.rank)
            case Failed() | Exited() if self.killed_at_s is not None:
                return  # the end is planned: errors are consequences
            case Failed() if Detector.EXCEPTION in self.disable_detectors:
                return
            case Exited() if Detector.EXIT in self.disable_detectors:
                return
            case Joined():
                self.joined[message.rank] = message.time_s
            case Restored():
                self.restored[message.rank] = message.time_s
                if message.rank == 0 and self.first_step_s is None:
                    self.step = message.step  # a script loads its own state and knows its step
                    self.program_start = message
            case StepRow():
                self.step = message.step
                if self.first_step_s is None:
                    self.first_step_s = message.time_s
            case Pinned(purpose=PinnedFor.MIRROR):
                self.mirrored.setdefault(message.step, set()).add(message.rank)
            case Pinned():
                self.pinned.setdefault(message.step, {})[message.rank] = message
            case StateDigest():
                self.digests.setdefault(message.step, {})[message.rank] = message.parts
            case Note(kind="condition") if message.data.get("what") == "memory":
                self.short_of_memory[node_id] = str(message.data["message"])
            case Note(kind="condition") if message.data.get("what") == "device" and message.data["message"]:
                self.broken_devices[node_id] = str(message.data["message"])
            case Done():
                self.done[message.rank] = message
            case Failed():
                error = message.error
                self.raised[message.rank] = message.collectives
                self.failures.append(
                    RankFailure(
                        message.rank,
                        error.error_class.value,
                        error.kind,
                        error.message,
                        error.traceback,
                        error.step,
                        error.phase,
                        error.time_s,
                        error.details,
                        error.failed_holders,
                    )
                )
            case Exited():
                if not (message.code == 0 and message.rank in self.done):
                    why = message.out_of_memory, message.last_output, message.failed_holders
                    self.exits.append(ProcessExit(message.rank, message.code, message.time_s, node_id, *why))
            case _:
                return
        self.changed.set()

    def record_loss(self, node_id: str, time_s: float) -> None:
        """Record the loss of an agent."""
        self.losses.setdefault(node_id, AgentLoss(node_id, time_s))
        self.changed.set()

    @property
    def is_complete(self) -> bool:
        """True if every rank's training function has returned."""
        return len(self.done) == len(self.generation.ranks)

    @property
    def is_stopped(self) -> bool:
        """True if every rank ended, and not all because the job is complete: at the agreed step of a planned stop, or
        after SIGTERM."""
        return self.is_complete and any(done.stopped for done in self.done.values())

    @property
    def running(self) -> set[int]:
        """Ranks that have neither ended nor been lost with their node."""
        lost = {place.rank for node in self.losses for place in self.generation.on(node)}
        return set(self.generation.ranks.numbers) - self.ended - set(self.done) - lost

    @property
    def is_broken(self) -> bool:
        """True if the generation cannot commit another step. After SIGTERM, its ranks first get the time to end."""
        is_lost = bool(self.losses) and self.killed_at_s is None
        return bool(self.failures or self.exits or is_lost or self.detected_cause)

    @property
    def checkpoint_damage(self) -> str:
        """Damage of the checkpoint that the ranks restored from; empty if no rank found any."""
        found = [failure.message for failure in self.failures if failure.kind == CheckpointDamagedError.__name__]
        return found[0] if found and self.generation.source.kind is RestoreKind.CHECKPOINT else ""

    @property
    def is_explained(self) -> bool:
        """True if one of the failures is not a consequence of another rank's death."""
        return is_explained(self.failures, self.exits, tuple(self.losses.values()), self.detected_cause)

    def classify(self) -> Cause:
        """Return why the generation broke."""
        names = {node.node_id: node.node_name for node in self.generation.ranks.nodes}
        losses = tuple(self.losses.values())
        cause = classify_failure(self.failures, self.exits, losses, self.detected_cause, names)
        if self.broken_devices:
            cause = blame_device(cause, self.broken_devices, self.generation.ranks.node_ids())
        crashed = {exit.rank: place for exit in self.exits if (place := exit.crash_place) is not None}
        return add_desync_evidence(cause, entered_collectives(self.places, self.raised), crashed)

    def pop_complete_pins(self) -> list[PinnedSet]:
        """Return the steps that every rank retains for a checkpoint, oldest first. Each step is returned once."""
        complete = {step: self.pinned[step] for step in self._complete(self.pinned)}
        self.pinned = {step: ranks for step, ranks in self.pinned.items() if step not in complete}
        return [
            PinnedSet(step, find_differing([pin.copies for pin in pins.values()])) for step, pins in complete.items()
        ]

    def pop_complete_mirrors(self) -> list[int]:
        """Return the steps that every rank retains for mirrors, oldest first. Each step is returned once."""
        ready = self._complete(self.mirrored)
        self.mirrored = {step: ranks for step, ranks in self.mirrored.items() if step not in ready}
        return ready

    def _complete(self, retained: Mapping[int, Collection[int]]) -> list[int]:
        return sorted(step for step, ranks in retained.items() if len(ranks) == len(self.generation.ranks))

    def result(self) -> Mapping[str, Any]:
        """Return the result of the leading rank."""
        return next((done.result for _, done in sorted(self.done.items()) if done.result), {})


def restore_monitor(
    last: Generation, statuses: Mapping[str, AgentStatus], grace_s: float, *, has_trained: bool = False
) -> tuple[GenerationMonitor, bool]:
    """Restore the monitor of a job's newest generation for a restarted supervisor.

    Args:
        last: the newest recorded generation.
        statuses: node → status of its agent.
        grace_s: time from now that ranks get if they have got SIGTERM.
        has_trained: the generation is recorded as running, so that an agent without its ranks is another one.

    Returns:
        The monitor with all messages that the agents received, and whether the generation was formed. A formed
        generation runs on all its ranks, or is broken with evidence.
    """
    monitor = GenerationMonitor(last, step=last.start_step)
    if any(status.is_terminating and status.generation == last.number for status in statuses.values()):
        monitor.killed_at_s = time.monotonic() + grace_s
    is_whole = True
    for node, status in statuses.items():
        for message in map(from_json, status.messages):
            if getattr(message, "generation", None) == last.number:
                monitor.receive(node, message)
        silent = {place.rank for place in last.on(node)} - set(status.running) - set(monitor.done) - monitor.ended
        is_whole = is_whole and status.generation == last.number and not silent
    for node, status in statuses.items():
        # If all ranks had joined, this is another agent.
        if (monitor.joined or has_trained) and status.generation != last.number:
            monitor.record_loss(node, time.time())
    return monitor, is_whole or monitor.is_broken
