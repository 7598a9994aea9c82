"""Wire models of audit records."""

from typing import Any

from pydantic import BaseModel

from regroup.api.schemas.wire import Wire


class AuditRecord(Wire):
    """A change that an identity requested."""

    id: int
    """Id of the record. Later records have higher ids."""
    time_s: float
    """Time of the change, Unix seconds."""
    actor: str
    """Name of the identity."""
    token_id: str | None
    """Id of its token; null for the owner of the server."""
    address: str
    """Address of the client; `local` for a Unix socket."""
    action: str
    """Noun and verb, for example `jobs.cancel`."""
    project: str | None
    """Project of the object; null for what belongs to no project."""
    object: str
    """Id or name of the changed object."""
    before: Any
    """The object before the change; null if it did not exist."""
    after: Any
    """The object after it; null if it does not exist any more."""
    position: int | None
    """Position in the chain, from 1; null until the record is sealed, about a second after the change."""
    digest: str | None
    """SHA-256 of the content and of the digest before it, in hexadecimal digits; null until the record is sealed."""


class AuditPage(BaseModel):
    """Audit records, newest first."""

    records: list[AuditRecord]
    """The records of this page."""
    next_page_token: str
    """Token of the next page; empty on the last one."""


class ChainPoint(Wire):
    """A point of the chain of audit records."""

    position: int
    """Position of a record; 0 before the first one."""
    digest: str
    """Digest of that record."""


class AuditChain(BaseModel):
    """The ends of the chain of sealed audit records."""

    start: ChainPoint
    """The point before the oldest record. It moves when old records are removed."""
    end: ChainPoint
    """The newest sealed record."""
