"""The text of a notification for people: a title and facts. Pure. Templates escape the text for their receiver."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from regroup.service.domain.hooks import TEST_EVENT, HookEvent

_LONGEST_TITLE = 200
_LONGEST_FACT = 600
_SIGNS = {"SUCCEEDED": "✅", "FAILED": "❌", "CANCELLED": "⏹"}


@dataclass(frozen=True)
class Summary:
    """A notification for people."""

    title: str
    """One line."""
    facts: tuple[tuple[str, str], ...]
    """Name and value, each one line."""


def summarize(event: HookEvent) -> Summary:
    """Return the text of an event. It has no control characters, but is not escaped."""
    facts = [("Project", event.project)]
    if event.job_id is not None:
        facts.append(("Job", f"{event.job_name} ({event.job_id})"))
    message = event.data.get("message") or event.data.get("cause")
    facts += [("Reason", _text(event.data.get("reason"))), ("Message", _text(message)), ("By", event.actor)]
    facts.append(("Time", format_time(event.time_s)))
    shown = tuple((name, _line(value, _LONGEST_FACT)) for name, value in facts if value)
    return Summary(_line(_title(event), _LONGEST_TITLE), shown)


def format_time(time_s: float) -> str:
    """Return a time as RFC 3339, in UTC; the first second of 1970 for one that no date can show."""
    try:
        moment = datetime.fromtimestamp(time_s, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _title(event: HookEvent) -> str:
    if event.type == TEST_EVENT:
        return "regroup: test of a hook"
    name, data = event.job_name, event.data
    match event.type:
        case "state":
            state = _text(data.get("to"))
            return f"{_SIGNS.get(state, '')} {name} is {state}".strip()
        case "held":
            return f"❌ {name} failed and keeps its nodes"
        case "incident":
            return f"{name}: incident at step {_text(data.get('at_step'))}"
        case "checkpoint":
            return f"{name}: checkpoint of step {_text(data.get('step'))}"
        case "generation":
            return f"{name}: generation {event.generation} on {_text(data.get('world_size'))} ranks"
        case other:
            return f"{name}: {other}"


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _line(text: str, limit: int) -> str:
    """Return a text as one line of printable characters, shortened."""
    whole = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(whole.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
