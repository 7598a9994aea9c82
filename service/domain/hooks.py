"""Hooks: requests of a project to be notified of events of its jobs, and the events that they deliver."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from regroup.service.domain.states import JobState

MAX_DATA_BYTES = 16 * 1024
"""Size of the data of an event in a notification. Standard Webhooks advises at most 20 kB for the whole body."""
TEST_EVENT = "test"
"""Type of the event that tests a hook."""
EVENT_TYPES = frozenset({
    "checkpoint", "checkpoint_removed", "exec", "generation", "held", "incident", "intent", "low_utilization", "nodes",
    "note", "phase", "pin", "rejected", "relocated", "result", "resumed", "spares", "state", "stragglers", "trial",
})  # fmt: skip
"""Types of events in the history of a job. `docs/api.md` describes them."""
STATE_PREFIX = "state:"
"""`state:FAILED` selects the events of type `state` that enter this state."""
DEFAULT_EVENTS = ("state:SUCCEEDED", "state:FAILED", "state:CANCELLED", "held")
"""Events of a hook that names none."""


class HookKind(StrEnum):
    """Receiver of a hook."""

    CLOUDEVENTS = "cloudevents"
    """A program: CloudEvents 1.0 as JSON, signed."""
    SLACK = "slack"
    """An incoming webhook of Slack."""
    TEAMS = "teams"
    """A workflow of Microsoft Teams that accepts Adaptive Cards."""
    EMAIL = "email"
    """Addresses of e-mail."""


class DeliveryState(StrEnum):
    """State of one delivery."""

    PENDING = "pending"
    """An attempt follows."""
    DELIVERED = "delivered"
    """The receiver accepted it."""
    FAILED = "failed"
    """No attempt follows."""


@dataclass(frozen=True)
class HookEvent:
    """An event with everything that a notification shows."""

    message_id: str
    """Unique name, without a full stop, which ends it in the signed text. It is the same in all attempts."""
    type: str
    project: str
    time_s: float
    """Unix seconds."""
    actor: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    """The data of the event, or `{"truncated": true}` with its size if it is too large."""
    job_id: str | None = None
    """None for a test."""
    job_name: str = ""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    number: int = 0
    """Number of the event in the history of its job."""
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "HookEvent":
        """Return the event of stored data. A damaged one is shown as such, and unknown fields are ignored."""
        found = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        return cls(**{**_DAMAGED, **found})


_DAMAGED: Mapping[str, Any] = {"message_id": "damaged", "type": "damaged", "project": "", "time_s": 0.0, "actor": ""}


@dataclass(frozen=True)
class HookFilter:
    """The events that a hook delivers."""

    events: frozenset[str]
    """Types, or `state:STATE`."""
    labels: Mapping[str, str]
    """Labels that the job must have, all of them."""


def is_event_filter(value: str) -> bool:
    """Return True for a type of events, and for `state:STATE`."""
    state = value.removeprefix(STATE_PREFIX)
    return value in EVENT_TYPES or (state != value and state in JobState.__members__)


def limit_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event, without what is too large for a notification."""
    size_bytes = len(json.dumps(data, ensure_ascii=False).encode())
    if size_bytes <= MAX_DATA_BYTES:
        return data
    short = {name: value for name, value in data.items() if isinstance(value, int | float | None) or _is_short(value)}
    return {**dict(list(short.items())[:20]), "truncated": True, "size_bytes": size_bytes}


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 500
