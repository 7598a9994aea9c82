"""The account of a job, folded from its history: its states, incidents and checkpoints."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.accounting import (
    StateMark,
    TimeClass,
    incident_seconds,
    seconds_by_class,
    spare_device_seconds,
    steps_lost,
)
from regroup.service.policy.lost_time import (
    GenerationProgress,
    repeated_seconds,
    unexplained_seconds,
    with_unexplained,
)
from regroup.service.store.rows.records import Event, Incident, JobRow
from regroup.service.store.store import Store

_EVENTS = 1000
_BEFORE_STEPS = (JobState.STARTING, JobState.RECOVERING, JobState.RESIZING)
"""States whose time continues after a script has started, until its first step."""
_WITHOUT_DEVICES = (JobState.QUEUED, JobState.SUSPENDED)
UNRECORDED = "unknown"
"""Reason of repeated steps that no incident recorded."""
RESTORE_SOURCES = ("checkpoint", "memory")
"""Sources from which nodes fetch state."""
_WHY_REFUSED = {"snapshot_damaged": "checksum", "snapshot_refused": "replicas"}


@dataclass
class JobAccount:
    """The account of one job up to event `number`. The caller retains it, so that each update reads only new events."""

    job: JobRow
    number: int = 0
    timeline: list[StateMark] = field(default_factory=list[StateMark])
    incidents: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Incident id → its newest report."""
    checkpoint_seconds: list[float] = field(default_factory=list[float])
    """Duration of each checkpoint save."""
    written_bytes: float = 0.0
    write_s: float = 0.0
    """Bytes that its nodes wrote for complete checkpoints, and seconds of the slowest node of each."""
    restored: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Source of state (`RESTORE_SOURCES`) → bytes that its nodes fetched, and seconds, summed over nodes."""
    install_seconds: list[float] = field(default_factory=list[float])
    """Duration of each installation of a Python environment."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """Kind → number of notes."""
    snapshots_refused: dict[str, int] = field(default_factory=dict[str, int])
    """Reason (`checksum` or `replicas`) → number of rejected snapshots."""
    world_size: int = 0
    """World size of the newest generation."""
    stragglers: int = 0
    """Number of ranks that delay the others."""
    spares: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Changes of its spare devices: time in Unix seconds, and the number of devices since then."""
    damaged_events: int = 0
    """Number of events that could not be read."""
    progress: Sequence[GenerationProgress] = ()
    """Progress of each generation, from its stored steps."""
    _progress_of: tuple[int, int] = (0, 0)
    """Generation and number of step rows of the job when `progress` was read."""
    _seconds_at: tuple[float, int, int, tuple[int, int]] | None = None
    """Time and position for which `_seconds` was computed."""
    _seconds: Mapping[TimeClass, float] = field(default_factory=dict[TimeClass, float])
    _is_regrouped: bool = True
    """True if a generation was formed, or corrected, since `progress` was read: earlier ones may have changed."""

    async def catch_up(self, store: Store, job: JobRow) -> None:
        """Read the job's events up to its row's version, and its progress."""
        await self.read_events(store, job)
        if (first := self.unread_progress) is not None:
            self.record_progress(await store.progress(job.id, first))

    async def read_events(self, store: Store, job: JobRow) -> None:
        """Read the job's events up to its row's version."""
        self.job = job
        while self.number < job.version:
            found = await store.events(job.id, self.number, _EVENTS)
            for event in found:
                self.try_to_record(event)
            if not found:  # the events were removed after their retention
                self.number = job.version

    def restore_incidents(self, incidents: Iterable[Incident]) -> None:
        """Add stored incidents whose events were removed."""
        for incident in incidents:
            self.incidents.setdefault(incident.id, incident.data)

    def try_to_record(self, event: Event) -> None:
        """Add the next event to the account, or count it if it is damaged."""
        try:
            self.record(event)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            self.damaged_events += 1

    def record(self, event: Event) -> None:
        """Add the next event to the account."""
        self.number = event.number
        if event.type == "note":
            self.notes[str(event.data.get("kind"))] += 1
            self._record_restore(event.data)
        if event.type == "state":
            if not JobState(event.data["to"]).has_allocations:
                self.spares.append((event.time_s, 0))
            is_held = bool(self.timeline) and self.timeline[-1].is_held
            state = JobState(event.data["to"])
            if state is JobState.RUNNING and event.data.get("reason") == Reason.SCRIPT_STARTED:
                # The script imports, loads data and compiles before its first step, which `resumed` reports.
                before = self.timeline[-1].state if self.timeline else state
                state = before if before in _BEFORE_STEPS else JobState.STARTING
            self.timeline.append(StateMark(event.time_s, state, is_held))
        elif event.type == "resumed" and self.timeline and self.timeline[-1].state in _BEFORE_STEPS:
            self.timeline.append(StateMark(event.time_s, JobState.RUNNING, self.timeline[-1].is_held))
        elif event.type == "held":
            self.timeline.append(StateMark(event.time_s, self.timeline[-1].state, is_held=True))
        elif event.type == "incident":
            self.incidents[str(event.data["id"])] = event.data
        elif event.type == "checkpoint" and event.data.get("duration_s") is not None:
            self.checkpoint_seconds.append(float(event.data["duration_s"]))
            self.written_bytes += float(event.data.get("written_bytes") or 0)
            self.write_s += float(event.data.get("write_s") or 0)
        elif event.type == "note" and event.data.get("kind") == "environment" and event.data["installed"]:
            self.install_seconds.append(float(event.data["seconds"]))
        elif event.type == "note" and (why := _WHY_REFUSED.get(str(event.data.get("kind")))):
            self.snapshots_refused[why] = self.snapshots_refused.get(why, 0) + 1
        elif event.type == "stragglers":
            self.stragglers = len(event.data["ranks"])
        elif event.type == "spares":
            self.spares.append((event.time_s, sum(event.data["ranks"].values())))
        elif event.type == "generation":
            self.world_size = int(event.data["world_size"])
        self._is_regrouped |= event.type in ("generation", "resumed")

    def _record_restore(self, note: Mapping[str, Any]) -> None:
        if note.get("kind") == "state_restored" and (source := note.get("source")) in RESTORE_SOURCES:
            fetched_bytes, seconds = self.restored.get(source, (0.0, 0.0))
            self.restored[source] = fetched_bytes + float(note["fetched_bytes"]), seconds + float(note["seconds"])

    @property
    def steps_lost(self) -> Mapping[str, int]:
        """Reason of incidents → number of committed steps that were repeated after them."""
        return with_unexplained(steps_lost(self.incidents.values()), self.progress, UNRECORDED)

    @property
    def is_idle(self) -> bool:
        """True if the job waits without devices, so that time adds nothing to its device-seconds."""
        last = self.timeline[-1] if self.timeline else None
        return last is not None and last.state in _WITHOUT_DEVICES and not last.is_held and not self.spare_devices

    @property
    def spare_devices(self) -> int:
        """Number of spare devices now."""
        return self.spares[-1][1] if self.spares else 0

    def spare_device_seconds(self, now: float) -> float:
        """Return the device-seconds of spare nodes until `now`."""
        return spare_device_seconds(self.spares, now)

    def seconds(self, now: float) -> Mapping[TimeClass, float]:
        """Return the seconds of each class until `now`, from what is stored: with or without incidents."""
        place = now, self.number, self.job.revision, self._progress_of
        if self._seconds_at != place:  # a scrape asks twice
            self._seconds_at, self._seconds = place, self._compute_seconds(now)
        return self._seconds

    def _compute_seconds(self, now: float) -> Mapping[TimeClass, float]:
        recorded = sum(steps_lost(self.incidents.values()).values())
        within = {
            **incident_seconds(self.incidents.values()),
            TimeClass.RECOMPUTE: repeated_seconds(self.progress, recorded, self.job.step_duration_s or 0.0),
            TimeClass.STALL: self.job.stall_s,
        }
        explained = {int(incident.get("generation") or 0) for incident in self.incidents.values()}
        lost = unexplained_seconds(self.timeline, self.progress, explained, now, self.job.reported_at)
        for kind, seconds in lost.items():
            within[kind] += seconds
        return seconds_by_class(self.timeline, now, within)

    @property
    def unread_progress(self) -> int | None:
        """The first generation whose progress must be read: all if one was formed, else the newest two if steps were
        added. None: there is nothing to read."""
        place = self.job.generation, self.job.step_rows
        if not self.job.generation or (not self._is_regrouped and place == self._progress_of):
            return None
        return 0 if self._is_regrouped else max(0, self.job.generation - 1)

    def record_progress(self, found: Sequence[GenerationProgress]) -> None:
        """Add the progress of the generations from `unread_progress` on."""
        first = self.unread_progress or 0
        self.progress = [*(each for each in self.progress if each.number < first), *found]
        self._progress_of, self._is_regrouped = (self.job.generation, self.job.step_rows), False
