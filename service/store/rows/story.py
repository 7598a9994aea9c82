"""The records that tell the story of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.store.rows.records import Checkpoint, Event, Incident, JobRow


@dataclass(frozen=True)
class GenerationHead:
    """A generation without the places of its ranks, and its progress."""

    number: int
    formed_s: float
    """Unix seconds at which its record was written."""
    layout: Mapping[str, Any]
    world_size: int
    start_step: int
    restore: Mapping[str, Any]
    cause: str
    first_step_s: float | None = None
    """Time of its first step; None: it committed none, or its steps were removed."""
    last_step: int | None = None
    last_step_s: float | None = None


@dataclass(frozen=True)
class StepMark:
    """The time of one step."""

    generation: int
    step: int
    time_s: float


@dataclass(frozen=True)
class StoryRecords:
    """All that the database has about the course of a job, in few rows."""

    job: JobRow
    states: Sequence[Event]
    """Events of type `state`, in order."""
    others: Sequence[Event]
    """The newest events of other types, in order. Frequent types are left out."""
    generations: Sequence[GenerationHead]
    incidents: Sequence[Incident]
    checkpoints: Sequence[Checkpoint]
    """All checkpoints, also those that are no longer in storage, by step."""
    steps: Sequence[StepMark]
    """Some steps, in the order of their commit."""
    mirrors: Sequence[StepMark] = ()
    """Some steps whose state other nodes held in memory, with the time from which they held it, in order."""
