"""What was seen of one job that was struck, as plain data: what is judged, reported and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.chaos.plan import Plan

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Fallen:
    """A blow that fell."""

    do: str
    what: str
    """For people."""
    time_s: float
    """Unix seconds."""
    at_step: int
    """Committed steps seen then."""
    generation: int
    seen_again_s: float | None = None
    """The first step that was committed after it was seen at the API; None if none was."""


@dataclass(frozen=True)
class Record:
    """One job: what was asked, what was done to it, and all that the API says of it afterwards."""

    plan: Plan
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
    fallen: Sequence[Fallen] = ()
    left: Sequence[str] = ()
    """What still names the job after its end."""
    fewest_loadable: int | None = None
    """The least number of whole, verified checkpoints at any look after the first was there; None if there was none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, without rows and events, which are many."""
        return {**asdict(self), "rows": len(self.rows), "events": len(self.events)}

    @property
    def stragglers(self) -> int:
        """How often ranks were named as stragglers."""
        return sum(1 for event in self.events if event["type"] == "stragglers" and event["data"]["ranks"])
