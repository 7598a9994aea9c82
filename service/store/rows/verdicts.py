"""Verdicts of chaos rehearsals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The result of one scenario: whether the invariants held, and what the faults cost."""

    scenario: str
    """Name of the scenario."""
    number: str
    """Number of the scenario."""
    what: str
    """The injected faults, for people."""
    seed: int
    passed: bool
    invariants: Mapping[str, bool]
    """Name of an invariant → whether it held."""
    problems: Sequence[str]
    """Violations; empty if all invariants held."""
    disabled_detectors: Sequence[str]
    incidents: Sequence[str]
    """Reasons of the job's incidents."""
    recovery_actions: Sequence[str | None]
    """Recovery action of each incident."""
    detect_s: float | None
    """Longest time until a fault was seen."""
    recover_s: float | None
    """Longest time from a fault to the next step."""
    steps_lost: int
    version: str
    """Version under test."""


@dataclass(frozen=True)
class VerdictRow:
    """A recorded verdict."""

    id: int
    time_s: float
    """Time at which it was recorded, Unix seconds."""
    recorded_by: str
    verdict: Verdict
