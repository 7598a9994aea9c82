"""The observation of one job with faults, as plain data: it is judged, reported and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.chaos.fault_plan import GENERATION_FAULTS, FaultPlan

Json = Mapping[str, Any]


@dataclass(frozen=True)
class InjectedFault:
    """An external fault that was injected."""

    do: str
    what: str
    """Description, for people."""
    time_s: float
    """Unix seconds."""
    at_step: int
    """Number of committed steps observed at that time."""
    generation: int
    resumed_s: float | None = None
    """Time when the API first showed a step committed after the fault, Unix seconds; None if it showed none."""


@dataclass(frozen=True)
class Record:
    """One job: its spec, its faults, and its state as the API reports it afterwards."""

    plan: FaultPlan
    job: Json
    incidents: Sequence[Json]
    events: Sequence[Json]
    generations: Sequence[Json]
    rows: Sequence[Json]
    """Committed steps in order."""
    checkpoints: Sequence[Json]
    ledger: Json
    seconds: Mapping[str, float]
    """Time class → seconds of the job."""
    injected: Sequence[InjectedFault] = ()
    leftovers: Sequence[str] = ()
    """Processes and scratch folders that still name the job after its end."""
    fewest_loadable: int | None = None
    """Minimum number of valid checkpoints in all polls after the first checkpoint; None if there was none."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the numbers of rows and events only."""
        return {**asdict(self), "rows": len(self.rows), "events": len(self.events)}

    def durations(self, incident: Json) -> Json:
        """Return the seconds of an incident's parts.

        An incident of an external fault starts with the injection. The supervisor gets no notice of the injection: its
        own durations start at the first symptom.
        """
        if (began_s := self._injected_s(incident)) is None:
            return incident["durations"]
        seen_s, first_step_s = incident["times"]["seen_s"], incident["times"].get("first_step_s")
        total_s = None if first_step_s is None else first_step_s - began_s
        return {**incident["durations"], "detect": seen_s - began_s, "total": total_s}

    def _injected_s(self, incident: Json) -> float | None:
        """Return the injection time of an incident's external fault: the newest after the previous incident."""
        injected = [fault.time_s for fault in self.injected if fault.do in GENERATION_FAULTS]
        if not injected:
            return None
        seen_s = incident["times"]["seen_s"]
        others = [each["times"]["seen_s"] for each in self.incidents if each["times"]["seen_s"] < seen_s]
        return max((time_s for time_s in injected if max(others, default=0.0) < time_s < seen_s), default=None)

    @property
    def stragglers(self) -> int:
        """Number of events that report stragglers."""
        return sum(1 for event in self.events if event["type"] == "stragglers" and event["data"]["ranks"])
