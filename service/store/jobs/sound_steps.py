"""The steps of a report that can be stored, and those that cannot. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.job_events import EventType, MalformedEventError
from regroup.service.domain.step_columns import StepColumns, find_malformed, step_key


@dataclass(frozen=True)
class StepEvent:
    """The event of one step, for the record that it is rejected."""

    seq: int
    key: str
    type: str
    generation: int
    """0 if it is unknown."""
    time_s: float
    """0 if it is unknown."""
    data: Mapping[str, Any]


def sound_steps(steps: StepColumns) -> tuple[StepColumns, Sequence[tuple[StepEvent, MalformedEventError]]]:
    """Return the steps whose values have the types of their columns, and the events of the others with their errors."""
    malformed = find_malformed(steps)
    if not malformed:
        return steps, ()
    sound = steps.select([place for place in range(len(steps)) if place not in malformed])
    return sound, [(_event_of(steps, place), error) for place, error in malformed.items()]


def first_of_each(steps: StepColumns) -> StepColumns:
    """Return the first of the rows of each step."""
    keys = list(zip(steps.generation, steps.step, strict=True))
    firsts = {key: place for place, key in reversed(list(enumerate(keys)))}
    return steps if len(firsts) == len(keys) else steps.select(sorted(firsts.values()))


def _event_of(steps: StepColumns, place: int) -> StepEvent:
    data = steps.row(place)
    generation, time_s = data["generation"], data["time_s"]
    return StepEvent(
        steps.seq[place],
        step_key(generation, data["step"]),
        EventType.STEP.value,
        generation if type(generation) is int else 0,
        float(time_s) if type(time_s) in (int, float) else 0.0,
        data,
    )
