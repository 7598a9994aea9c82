"""What was seen of one job that was struck, as plain data: what is judged, reported and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.chaos.fault_plan import GENERATION_FAULTS, FaultPlan

Json = Mapping[str, Any]


@dataclass(frozen=True)
class InjectedFault:
    """A blow that fell."""

    do: str
    what: str
    """For people."""
    time_s: float
    """Unix seconds."""
    at_step: int
    """Committed steps seen then."""
    generation: int
    resumed_s: float | None = None
    """The first step that was committed after it was seen at the API; None if none was."""


@dataclass(frozen=True)
class Record:
    """One job: what was asked, what was done to it, and all that the API says of it afterwards."""

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
    """Where the job's time went, by class."""
    injected: Sequence[InjectedFault] = ()
    leftovers: Sequence[str] = ()
    """What still names the job after its end."""
    fewest_loadable: int | None = None
    """The least number of whole, verified checkpoints at any look after the first was there; None if there was none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, without rows and events, which are many."""
        return {**asdict(self), "rows": len(self.rows), "events": len(self.events)}

    def durations(self, incident: Json) -> Json:
        """Seconds that an incident's parts took. One that a blow from outside came to began with the blow: nobody tells
        the supervisor, which counts from what it noticed first."""
        if (began_s := self._injected_s(incident)) is None:
            return incident["durations"]
        seen_s, first_step_s = incident["times"]["seen_s"], incident["times"].get("first_step_s")
        total_s = None if first_step_s is None else first_step_s - began_s
        return {**incident["durations"], "detect": seen_s - began_s, "total": total_s}

    def _injected_s(self, incident: Json) -> float | None:
        """When the blow fell that an incident is of: after all others were seen."""
        injected = [fault.time_s for fault in self.injected if fault.do in GENERATION_FAULTS]
        if not injected:
            return None
        seen_s = incident["times"]["seen_s"]
        others = [each["times"]["seen_s"] for each in self.incidents if each["times"]["seen_s"] < seen_s]
        return max((time_s for time_s in injected if max(others, default=0.0) < time_s < seen_s), default=None)

    @property
    def stragglers(self) -> int:
        """How often ranks were named as stragglers."""
        return sum(1 for event in self.events if event["type"] == "stragglers" and event["data"]["ranks"])
