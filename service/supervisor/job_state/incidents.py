"""One incident: its cause, its evidence, the recovery action taken, and when each phase of the recovery ended."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from regroup.service.domain.job_events import IncidentRevised, RecoveryAction
from regroup.service.policy.recovery.classify import Cause, RankFailure

_PHASES = ("fault_s", "seen_s", "dead_s", "decided_s", "formed_s", "restored_s", "first_step_s")
_NAMES = ("detect", "teardown", "decide", "form", "restore", "first_step")


@dataclass
class Incident:
    """Fills while a job recovers; every revision is an event."""

    id: str
    generation: int
    cause: Cause
    at_step: int
    """Last committed step that was reported before."""
    times: dict[str, float] = field(default_factory=dict[str, float])
    """Unix seconds at which each phase ended."""
    next_generation: int | None = None
    recovery_action: RecoveryAction = RecoveryAction.NONE
    steps_lost: int | None = None
    revision: int = 0
    evidence_bytes: int | None = None
    """Size of its evidence in durable storage; None: not collected yet; 0: there is none."""
    evidence_missing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of each node without evidence → why."""

    def mark_detected(self, seen_s: float) -> None:
        """Set the times of the fault and its detection. Call it again when more evidence of the cause arrives."""
        self.times |= {"fault_s": min(self.cause.time_s, seen_s), "seen_s": seen_s}

    def mark_phase(self, phase: str, time_s: float) -> None:
        """Record the end of a phase. It is never before the end of the previous phase, even if node clocks differ."""
        assert phase in _PHASES, phase
        earlier = [self.times[name] for name in _PHASES[: _PHASES.index(phase)] if name in self.times]
        self.times.setdefault(phase, max([time_s, *earlier]))

    def mark_job_end(self, time_s: float) -> None:
        """Record the end of the job before another step. A script does not have to take one."""
        self.times.setdefault("ended_s", max([time_s, *self.times.values()]))

    @property
    def durations(self) -> dict[str, float]:
        """Seconds of each finished phase, and `total` once training continues."""
        spans = {
            name: self.times[end] - self.times[start]
            for name, start, end in zip(_NAMES, _PHASES, _PHASES[1:], strict=False)
            if start in self.times and end in self.times
        }
        if "first_step_s" in self.times:
            spans["total"] = self.times["first_step_s"] - self.times["fault_s"]
        return spans

    def to_event(self) -> IncidentRevised:
        """Return the event of the present revision."""
        failure, evidence = self.cause.failure, self.cause.evidence
        return IncidentRevised(
            id=self.id,
            revision=self.revision,
            cause=self.cause.summary,
            reason=self.cause.reason,
            rank=self.cause.rank,
            node_id=self.cause.node_id,
            evidence=asdict(failure) if failure else None if evidence is None else dict(evidence),
            generation=self.generation,
            next_generation=self.next_generation,
            recovery_action=self.recovery_action,
            at_step=self.at_step,
            steps_lost=self.steps_lost,
            times=dict(self.times),
            durations=self.durations,
            evidence_bytes=self.evidence_bytes,
            evidence_missing=dict(self.evidence_missing),
        )

    @classmethod
    def from_event(cls, event: IncidentRevised) -> "Incident":
        """Restore an incident from its newest revision."""
        evidence = event.evidence
        failure = RankFailure(**evidence) if evidence and "error_class" in evidence else None
        cause = Cause(
            event.reason,
            event.cause,
            event.times["fault_s"],
            event.rank,
            event.node_id,
            failure,
            None if failure else evidence,
        )
        return cls(
            id=event.id,
            generation=event.generation,
            cause=cause,
            at_step=event.at_step,
            times=dict(event.times),
            next_generation=event.next_generation,
            recovery_action=event.recovery_action,
            steps_lost=event.steps_lost,
            revision=event.revision,
            evidence_bytes=event.evidence_bytes,
            evidence_missing=event.evidence_missing,
        )
