"""States and generations of a job as spans of time. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.store.rows.records import Event
from regroup.service.store.rows.story import GenerationHead


class RestoredFrom(StrEnum):
    """Source of the state of a generation."""

    NOTHING = "nothing"
    """Training started from the beginning."""
    MEMORY = "memory"
    """Snapshots in the memory of the ranks' own nodes."""
    MIRROR = "mirror"
    """Snapshots in memory, of which some were copied from another node."""
    DISK = "disk"
    """A checkpoint in durable storage."""


@dataclass(frozen=True)
class StateSpan:
    """Time in which a job was in one state."""

    state: str
    reason: str
    message: str
    from_s: float
    until_s: float | None
    """None: it lasts."""


@dataclass(frozen=True)
class GenerationSpan:
    """One formation of the ranks over time."""

    number: int
    from_s: float
    until_s: float | None
    """Time at which it ended; None: it still runs."""
    first_step_s: float | None
    last_step: int | None
    last_step_s: float | None
    kept_until_step: int | None
    """Last of its steps that counts; None: all count."""
    repeated: int
    """Number of its steps that later generations repeated."""
    world_size: int
    layout: Layout
    start_step: int
    restored_from: RestoredFrom
    cause: str

    @property
    def step_s(self) -> float | None:
        """Mean seconds per step, from its first to its last step; None with less than two steps."""
        if self.first_step_s is None or self.last_step_s is None or self.last_step is None:
            return None
        steps = self.last_step - self.start_step - 1
        return (self.last_step_s - self.first_step_s) / steps if steps > 0 else None


def state_spans(events: Sequence[Event]) -> tuple[StateSpan, ...]:
    """Return the states in order. Several clocks wrote them: a state never begins before the one before it."""
    begun: list[tuple[float, Event]] = []
    for event in events:
        begun.append((max(event.time_s, begun[-1][0]) if begun else event.time_s, event))
    ends: list[float | None] = [start_s for start_s, _ in begun[1:]]
    return tuple(
        StateSpan(
            state=(state := str(event.data.get("to", ""))),
            reason=str(event.data.get("reason") or ""),
            message=str(event.data.get("message") or ""),
            from_s=start_s,
            until_s=start_s if end_s is None and _is_terminal(state) else end_s,
        )
        for (start_s, event), end_s in zip(begun, [*ends, None], strict=False)
    )


def generation_spans(
    heads: Sequence[GenerationHead], ended_s: Mapping[int, float], over_s: float | None
) -> tuple[GenerationSpan, ...]:
    """Return the generations in order.

    Args:
        ended_s: generation → time at which an incident ended it.
        over_s: end of the job, or the time at which it released its devices; None: the newest generation may run.
    """
    kept: int | None = None
    found: list[GenerationSpan] = []
    next_formed_s = over_s
    for head in reversed(heads):
        found.append(
            GenerationSpan(
                number=head.number,
                from_s=head.formed_s,
                until_s=_end(head, ended_s.get(head.number), next_formed_s),
                first_step_s=head.first_step_s,
                last_step=head.last_step,
                last_step_s=head.last_step_s,
                kept_until_step=kept if _repeated(head, kept) else None,
                repeated=_repeated(head, kept),
                world_size=head.world_size,
                layout=_layout(head.layout),
                start_step=head.start_step,
                restored_from=restored_from(head.restore),
                cause=head.cause,
            )
        )
        kept = head.start_step if kept is None else min(kept, head.start_step)
        next_formed_s = head.formed_s
    return tuple(found[::-1])


def restored_from(restore: Mapping[str, Any]) -> RestoredFrom:
    """Return the source of a state from the record of a generation."""
    kind = restore.get("kind") or restore.get("source")
    if kind == "checkpoint":
        return RestoredFrom.DISK
    if kind != "memory":
        return RestoredFrom.NOTHING
    return RestoredFrom.MIRROR if restore.get("fetch") and not restore.get("world_size") else RestoredFrom.MEMORY


def _repeated(head: GenerationHead, kept: int | None) -> int:
    """Return the number of steps of a generation above the last one that counts."""
    if kept is None or head.last_step is None:
        return 0
    return max(0, head.last_step - max(kept, head.start_step))


def _end(head: GenerationHead, ended_s: float | None, next_formed_s: float | None) -> float | None:
    """Return the end of a generation: that of its incident, else the start of the next one."""
    ends = [each for each in (ended_s, next_formed_s) if each is not None]
    return max(head.formed_s, min(ends)) if ends else None


def _layout(layout: Mapping[str, Any]) -> Layout:
    return Layout(**{name: int(layout[name]) for name in Layout.__dataclass_fields__ if layout.get(name)})


def _is_terminal(state: str) -> bool:
    return state in {each.value for each in JobState if each.is_terminal}
