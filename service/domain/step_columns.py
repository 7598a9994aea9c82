"""Committed steps as columns. A supervisor reports many of them at once, and a record for each would cost the server
more time than all the rest of their way into the database."""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType
from typing import Any, Protocol, TypeVar

from regroup.service.domain.job_events import EventType, MalformedEventError, StoredEvent, decode
from regroup.workers.contract.messages import StepRow

_METRICS = "extra"
_NAMES = tuple(each.name for each in fields(StepRow) if each.name != _METRICS)
_DEFAULTS = {each.name: each.default for each in fields(StepRow) if each.default is not MISSING}
_REQUIRED = frozenset(_NAMES) - _DEFAULTS.keys()
_USUAL: Mapping[Any, frozenset[type]] = {
    int: frozenset({int}),
    float: frozenset({float, int}),
    int | None: frozenset({int, NoneType}),
    float | None: frozenset({float, int, NoneType}),
}
_USUAL_TYPES = {name: _USUAL[hint] for name, hint in typing.get_type_hints(StepRow).items() if hint in _USUAL}
"""Column → types of its values, if nothing unusual was reported."""


@dataclass(frozen=True)
class StepColumns:
    """Committed steps. Each has the same place in all columns. Their types are those of `StepRow` after
    `find_malformed` has named the other ones."""

    seq: list[int] = field(default_factory=list[int])
    """Numbers of their events, ascending."""
    generation: list[int] = field(default_factory=list[int])
    step: list[int] = field(default_factory=list[int])
    time_s: list[float] = field(default_factory=list[float])
    duration_s: list[float | None] = field(default_factory=list[float | None])
    loss: list[float | None] = field(default_factory=list[float | None])
    tokens: list[int | None] = field(default_factory=list[int | None])
    samples: list[int | None] = field(default_factory=list[int | None])
    samples_hash: list[int | None] = field(default_factory=list[int | None])
    learning_rate: list[float | None] = field(default_factory=list[float | None])
    grad_norm: list[float | None] = field(default_factory=list[float | None])
    validation_loss: list[float | None] = field(default_factory=list[float | None])
    stall_s: list[float] = field(default_factory=list[float])
    metrics: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Column of each metric in `extra`, if all steps have metrics of the same names."""
    extra: list[Any] = field(default_factory=list[Any])
    """The metrics of each step, if their names differ; empty otherwise."""

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.seq)

    def select(self, places: Sequence[int]) -> "StepColumns":
        """Return the steps at some places, in their order."""
        if places == range(len(self)):
            return self
        columns = {name: _select(getattr(self, name), places) for name in ("seq", *_NAMES)}
        metrics = {name: _select(column, places) for name, column in self.metrics.items()}
        return StepColumns(**columns, metrics=metrics, extra=_select(self.extra, places) if self.extra else [])

    def after(self, seq: int) -> "StepColumns":
        """Return the steps with larger numbers than `seq`, in the order of their numbers."""
        places = sorted((place for place, number in enumerate(self.seq) if number > seq), key=self.seq.__getitem__)
        return self if places == list(range(len(self))) else self.select(places)

    def row(self, place: int) -> dict[str, Any]:
        """Return the data of one step, as an event has it."""
        metrics = self.extra[place] if self.extra else {name: each[place] for name, each in self.metrics.items()}
        return {**{name: getattr(self, name)[place] for name in _NAMES}, _METRICS: metrics}


class NumberedEvent(StoredEvent, Protocol):
    """An encoded event with its number."""

    @property
    def seq(self) -> int: ...


E = TypeVar("E", bound=NumberedEvent)


def step_key(generation: int, step: int) -> str:
    """Return the key of the event of a step."""
    return f"{EventType.STEP.value}:{generation}:{step}"


def split_steps(events: Sequence[E]) -> tuple[StepColumns, list[E]]:
    """Return the steps among events as columns, and the other events. A step without a required value is one of them.

    The key of a step follows from its generation and number (`step_key`).
    """
    steps, others = list[E](), list[E]()
    for event in events:
        (steps if _is_whole_step(event) else others).append(event)
    if not steps:
        return StepColumns(), others
    steps.sort(key=lambda event: event.seq)
    rows = [{**_DEFAULTS, **event.data} for event in steps]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _NAMES}
    found = [row.get(_METRICS, {}) for row in rows]
    numbers = [event.seq for event in steps]
    if any(type(each) is not dict or each.keys() != found[0].keys() for each in found):
        return StepColumns(numbers, **columns, extra=found), others
    metrics = {name: [each[name] for each in found] for name in found[0]}
    return StepColumns(numbers, **columns, metrics=metrics), others


def find_malformed(steps: StepColumns) -> Mapping[int, MalformedEventError]:
    """Return the places of the steps that have a value of a wrong type, each with its error."""
    are_usual = all(types.issuperset(map(type, getattr(steps, name))) for name, types in _USUAL_TYPES.items())
    if are_usual and all(type(each) is dict for each in steps.extra):
        return {}
    found = dict[int, MalformedEventError]()
    for place in range(len(steps)):
        try:
            decode(EventType.STEP, steps.row(place))
        except MalformedEventError as error:
            found[place] = error
    return found


def _select(column: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [column[place] for place in places]


def _is_whole_step(event: NumberedEvent) -> bool:
    return event.type == EventType.STEP and event.data.keys() >= _REQUIRED
