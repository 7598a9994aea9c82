"""Events of a job that a time axis shows as marks, in words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.store.rows.records import Event

_MAX_CHARACTERS = 400
_OWN_KINDS = frozenset({"node", "environment"})
"""Notes that describe each start, and no event in the course of the job."""


class MarkKind(StrEnum):
    """Kinds of marks."""

    REQUEST = "request"
    """A user or the server requested a change."""
    NODES = "nodes"
    """The job got or left nodes."""
    STRAGGLER = "straggler"
    """Ranks became slow, or are no longer slow."""
    CHECKPOINT = "checkpoint"
    """A checkpoint was pinned, or could not be used."""
    NOTE = "note"
    """Any other observation."""


@dataclass(frozen=True)
class Mark:
    """A moment in the course of a job."""

    event: int
    """Number of its event."""
    time_s: float
    kind: MarkKind
    generation: int
    actor: str
    text: str


def marks_of(events: Sequence[Event]) -> tuple[Mark, ...]:
    """Return the marks of events, in order. Events that a time axis does not show are left out."""
    found: list[Mark] = []
    for event in events:
        shown = _describe(event)
        if shown is not None:
            kind, text = shown
            found.append(Mark(event.number, event.time_s, kind, event.generation, event.actor, text[:_MAX_CHARACTERS]))
    return tuple(found)


def _describe(event: Event) -> tuple[MarkKind, str] | None:
    data = event.data
    match event.type:
        case "intent":
            return MarkKind.REQUEST, "; ".join(_request(name, value) for name, value in data.items())
        case "nodes" | "relocated":
            return MarkKind.NODES, _nodes(data)
        case "stragglers":
            return MarkKind.STRAGGLER, _stragglers(data.get("ranks") or ())
        case "pin":
            return (
                MarkKind.CHECKPOINT,
                f"checkpoint of step {data.get('step')} {'' if data.get('pinned') else 'un'}pinned",
            )
        case "note" if data.get("kind") in _OWN_KINDS or "launcher" in data:
            return None
        case "note":
            kind = str(data.get("kind", "note")).replace("_", " ")
            is_checkpoint = kind.startswith(("checkpoint", "mirror"))
            return MarkKind.CHECKPOINT if is_checkpoint else MarkKind.NOTE, f"{kind}: {_rest(data)}"
        case _:
            return MarkKind.NOTE, f"{event.type.replace('_', ' ')}: {_rest(data)}".removesuffix(": ")


def _request(name: str, value: Any) -> str:
    if value is None:
        return "resume requested" if name == "suspend" else f"{name} withdrawn"
    if isinstance(value, str):
        return f"{name} requested: {value}"
    details = value if isinstance(value, Mapping) else {}
    layout = details.get("layout")
    target = f" to {_layout(layout)}" if isinstance(layout, Mapping) else ""
    reason = f": {details['why']}" if details.get("why") else ""
    return f"{name} requested{target}{reason}"


def _layout(layout: Mapping[str, Any]) -> str:
    degrees = {name: int(value) for name, value in layout.items() if name in Layout.__dataclass_fields__ and value}
    return str(Layout(**degrees))


def _nodes(data: Mapping[str, Any]) -> str:
    if "nodes" in data:
        left = ", ".join(str(name) for name in (data.get("former") or {}).values())
        return f"continues on {_names(data['nodes'])}" + (f", leaves {left}" if left else "")
    words = {"lost": "lost", "taken": "took", "left": "left", "released": "released", "added": "took"}
    parts = [f"{words.get(name, name)} {_names(value)}" for name, value in data.items() if value]
    return "; ".join(parts) or "nodes changed"


def _names(value: Any) -> str:
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return str(value)
    return ", ".join(str(each.get("name", "")) if isinstance(each, Mapping) else str(each) for each in value)


def _stragglers(ranks: Sequence[Mapping[str, Any]]) -> str:
    if not ranks:
        return "no rank is slow any more"
    return "; ".join(
        f"rank {each['rank']} on {each['node']} works {each['work_s']:.3g} s a step, the others {each['usual_s']:.3g} s"
        for each in ranks
    )


def _rest(data: Mapping[str, Any]) -> str:
    if data.get("message"):
        return str(data["message"])
    shown = {name: value for name, value in data.items() if name != "kind" and isinstance(value, str | int | float)}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
