"""Wire models of chaos rehearsals."""

from typing import Annotated

from pydantic import Field

from regroup.api.schemas.wire import Wire
from regroup.service.spec.types import MAX_STEPS, Flag, Integer, Line, Name, Number, SpecModel

MAX_PROBLEM_CHARACTERS, MAX_PROBLEMS = 1000, 50
_ShortName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]+$", max_length=60)]
_Seconds = Annotated[Number, Field(ge=0, le=1e9)]
_Problem = Annotated[str, Field(max_length=MAX_PROBLEM_CHARACTERS)]


class ScenarioVerdict(SpecModel):
    """The result of one scenario of `regroup chaos`."""

    scenario: Name
    """Name of the scenario, for example `rank-killed`."""
    number: _ShortName
    """Number of the scenario."""
    what: Annotated[str, Field(max_length=500)]
    """The injected faults, for people."""
    seed: Integer = Field(ge=0, lt=2**53)
    """Seed of the ranks, steps and phases of the faults."""
    passed: Flag
    """True if all invariants held."""
    invariants: Annotated[dict[_ShortName, Flag], Field(max_length=20)] = {}
    """Name of an invariant → true if it held."""
    problems: Annotated[list[_Problem], Field(max_length=MAX_PROBLEMS)] = []
    """Violations of invariants."""
    disabled_detectors: Annotated[list[_ShortName], Field(max_length=20)] = []
    """Detectors that were disabled. A scenario may then fail."""
    incidents: Annotated[list[_ShortName], Field(max_length=1000)] = []
    """Reasons of the job's incidents, in order."""
    recovery_actions: Annotated[list[_ShortName | None], Field(max_length=1000)] = []
    """Recovery action of each incident; null if it has none."""
    detect_s: _Seconds | None = None
    """Longest time from a fault until it was seen; null if no incident has one."""
    recover_s: _Seconds | None = None
    """Longest time from a fault to the next step; null if the job did not continue."""
    steps_lost: Integer = Field(default=0, ge=0, le=MAX_STEPS)
    """Number of steps that were repeated."""
    version: Line = ""
    """Version of regroup under test."""


class ChaosVerdict(Wire):
    """A recorded verdict."""

    id: int
    """Number of the record."""
    time_s: float
    """Time at which it was recorded."""
    recorded_by: str
    """Identity that recorded it."""
    verdict: ScenarioVerdict
    """The result of the scenario."""


class VerdictList(Wire):
    """Verdicts, the newest first."""

    verdicts: list[ChaosVerdict]
    """The verdicts. The server keeps the newest 1000."""
