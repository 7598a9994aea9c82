"""Audit records and their chain: each sealed record has a digest over its content and the digest before it.

The digest of one record proves that it, and every record before it that still exists, is unchanged.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

_ORIGIN = "0" * 64
_CONTENT = ("time_s", "actor", "token_id", "address", "action", "project", "object", "before", "after")


@dataclass(frozen=True)
class AuditRecord:
    """A stored audit record."""

    id: int
    time_s: float
    """Unix seconds."""
    actor: str
    """Name of the identity."""
    token_id: str | None
    """Id of its token; None for the owner's."""
    address: str
    """Address of the client."""
    action: str
    """Noun and verb, for example `jobs.cancel`."""
    project: str | None
    """Project of the object; None for what belongs to no project."""
    object: str
    """Id or name of the changed object."""
    before: Any
    """The object before the change; None if it did not exist."""
    after: Any
    """The object after it; None if it does not exist any more."""
    position: int | None
    """Position in the chain, from 1; None if the record is not sealed yet."""
    digest: str | None
    """SHA-256 of the content and of the digest before it, in hexadecimal digits."""


@dataclass(frozen=True)
class ChainEnd:
    """A point of the chain: the position and the digest of a record."""

    position: int
    digest: str


ORIGIN = ChainEnd(0, _ORIGIN)
"""The point before the first record."""


@dataclass(frozen=True)
class ChainReport:
    """Result of a verification."""

    count: int
    """Number of records that follow each other without a fault."""
    end: ChainEnd
    """The last of them."""
    fault: str = ""
    """Fault after it; empty if there is none."""


def digest_of(record: AuditRecord, before: ChainEnd) -> str:
    """Return the digest of a record that follows `before` in the chain."""
    content: list[Any] = [before.digest, before.position + 1, *(getattr(record, name) for name in _CONTENT)]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ChainVerifier:
    """Verifies sealed records in the order of their positions, and stops at the first fault.

    Args:
        start: the point before the first record; None if it is unknown. Then the first record itself is not verified.
        noted: a point that was noted earlier and that the chain must contain; None for none.
    """

    def __init__(self, start: ChainEnd | None, noted: ChainEnd | None = None) -> None:
        self._at, self._noted, self._count, self._fault = start, noted, 0, ""
        self._is_met = noted is None or noted == start

    def add(self, record: AuditRecord) -> None:
        """Verify the next record. Without effect after a fault."""
        if self._fault:
            return
        before, found = self._at, ChainEnd(record.position or 0, record.digest or "")
        if before is not None and found.position != before.position + 1:
            self._fault = f"record {before.position + 1} is missing; record {found.position} follows"
        elif before is not None and found.digest != digest_of(record, before):
            self._fault = f"record {found.position} was changed: its digest does not match its content"
        elif self._noted is not None and found.position == self._noted.position and found != self._noted:
            self._fault = f"record {found.position} does not have the digest that was noted"
        else:
            self._at, self._count = found, self._count + 1
            self._is_met = self._is_met or found == self._noted

    def report(self, end: ChainEnd | None = None) -> ChainReport:
        """Return the result.

        Args:
            end: the newest record of the chain, which must have been added; None if it is unknown.
        """
        last, fault = self._at or ORIGIN, self._fault
        if not fault and end is not None and last.position < end.position:
            fault = f"the records from {last.position + 1} to {end.position} are missing"
        if not fault and not self._is_met and self._noted is not None:
            fault = f"the noted record {self._noted.position} is not among the records"
        return ChainReport(self._count, last, fault)
