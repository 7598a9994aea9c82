"""Rows of hooks and of deliveries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.credentials.keyring import Owner
from regroup.service.domain.hooks import DeliveryState, HookEvent, HookFilter, HookKind
from regroup.service.store.schema.json_values import CorruptJson


@dataclass(frozen=True)
class HookRow:
    """A hook of a project."""

    id: str
    project: str
    name: str
    """Description, for people."""
    kind: HookKind
    url: str | None
    """URL of the receiver; None for e-mail. It may contain a secret."""
    recipients: tuple[str, ...]
    """Addresses of e-mail."""
    events: tuple[str, ...]
    """Types of events, or `state:STATE`."""
    labels: Mapping[str, str]
    """Labels that a job must have."""
    is_enabled: bool
    secret: str | None = field(repr=False)
    """Key of the signatures; None for a kind without."""
    created_at: float
    """Unix seconds."""
    created_by: str
    former_secret: str | None = field(default=None, repr=False)
    """Key before the last rotation."""
    former_until: float | None = None
    """Time until which notifications are also signed with it, Unix seconds."""

    @property
    def selection(self) -> HookFilter:
        """The events that it delivers."""
        return HookFilter(frozenset(self.events), self.labels)

    @property
    def owner(self) -> Owner:
        """The owner to which its encrypted keys are bound."""
        return Owner("hook", self.project, self.id)

    def secrets_at(self, now: float) -> list[str]:
        """Return the stored keys that sign a notification, encrypted if the server has a key."""
        keys = [] if self.secret is None else [self.secret]
        if self.former_secret is not None and self.former_until is not None and now < self.former_until:
            keys.append(self.former_secret)
        return keys

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> "HookRow":
        """Return the hook of a stored row. One with a damaged filter delivers nothing."""
        values: dict[str, Any] = dict(row)
        is_damaged = any(isinstance(values[name], CorruptJson) for name in ("events", "labels", "recipients"))
        values |= {"kind": HookKind(values["kind"]), "recipients": tuple(values["recipients"])}
        values["events"] = () if is_damaged else tuple(values["events"])
        return cls(**values)


@dataclass(frozen=True)
class DeliveryRow:
    """A delivery of one event to one hook."""

    id: int
    hook_id: str
    message_id: str
    """Unique name of the message. A redelivery has the same."""
    event: HookEvent
    state: DeliveryState
    attempts: int
    created_at: float
    """Unix seconds, of the database's clock."""
    next_attempt_at: float
    """Unix seconds."""
    attempted_at: float | None = None
    """Begin of the last attempt, Unix seconds."""
    finished_at: float | None = None
    """Time at which it was delivered or failed, Unix seconds."""
    status_code: int | None = None
    """HTTP status of the last attempt."""
    duration_s: float | None = None
    """Duration of the last attempt; None while it is in progress."""
    error: str = ""
    """Problem of the last attempt."""
    redelivery_of: int | None = None
    """Id of the delivery that this one repeats."""

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> "DeliveryRow":
        """Return the delivery of a stored row."""
        event, state = HookEvent.from_json(row["event"]), DeliveryState(row["state"])
        values: dict[str, Any] = {**row, "event": event, "state": state}
        return cls(**values)


@dataclass(frozen=True)
class ClaimedDelivery:
    """A delivery that this server attempts now, with its hook."""

    delivery: DeliveryRow
    hook: HookRow
