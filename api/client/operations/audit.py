"""Requests about audit records."""

import httpx2

from regroup.api.client.connection.requests import Listing, Page, Params, Request, to_model, url_path
from regroup.api.schemas.audit import AuditChain, AuditPage, AuditRecord
from regroup.service.domain.audit import AuditRecord as Sealed
from regroup.service.domain.audit import ChainEnd

_BATCH = 1000


def records(filters: Params) -> Listing[AuditRecord]:
    """List records, newest first."""

    def parse(response: httpx2.Response) -> Page[AuditRecord]:
        found = to_model(AuditPage)(response)
        return Page(found.records, found.next_page_token or None)

    def request_page(token: str) -> Request[Page[AuditRecord]]:
        return Request("GET", url_path("audit"), parse, params={**filters, "page_token": token or None})

    return Listing(request_page, "")


def filters_of(
    project: str | None,
    actor: str | None,
    action: str | None,
    object: str | None,
    since_s: float | None,
    until_s: float | None,
) -> dict[str, str | None]:
    """Return the parameters of a list."""
    times = {name: None if at_s is None else repr(at_s) for name, at_s in (("since", since_s), ("until", until_s))}
    return {"project": project, "actor": actor, "action": action, "object": object, **times}


def sealed_records(filters: Params, after: int) -> Listing[AuditRecord]:
    """List sealed records above a position, oldest first."""

    def parse(response: httpx2.Response) -> Page[AuditRecord]:
        found = [AuditRecord.model_validate_json(line) for line in response.content.splitlines()]
        return Page(found, str(found[-1].position) if len(found) == _BATCH else None)

    def request_page(cursor: str) -> Request[Page[AuditRecord]]:
        return Request("GET", url_path("audit", "export"), parse, params={**filters, "after": cursor, "limit": _BATCH})

    return Listing(request_page, str(after))


def chain() -> Request[AuditChain]:
    """Get the ends of the chain."""
    return Request("GET", url_path("audit", "chain"), to_model(AuditChain))


def to_sealed(record: AuditRecord) -> Sealed:
    """Return a record for a verification."""
    return Sealed(**dict(record))


def ends_of(found: AuditChain) -> tuple[ChainEnd, ChainEnd]:
    """Return the ends of the chain for a verification."""
    return ChainEnd(found.start.position, found.start.digest), ChainEnd(found.end.position, found.end.digest)
