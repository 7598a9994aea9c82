"""Requests about the use of devices."""

from collections.abc import Sequence
from typing import Literal

import httpx2

from regroup.api.client.connection.requests import Listing, Page, Params, Request, to_model, url_path
from regroup.api.schemas.usage import UsagePage, UsageRow

GroupName = Literal["project", "user", "class", "job"]


def usage(filters: Params) -> Listing[UsageRow]:
    """List the rows of a report."""

    def parse(response: httpx2.Response) -> Page[UsageRow]:
        found = to_model(UsagePage)(response)
        return Page(found.rows, found.next_page_token or None)

    def request_page(token: str) -> Request[Page[UsageRow]]:
        return Request("GET", url_path("usage"), parse, params={**filters, "page_token": token or None})

    return Listing(request_page, "")


def usage_csv(filters: Params) -> Request[str]:
    """Get a report as CSV."""
    return Request("GET", url_path("usage"), lambda response: response.text, params={**filters, "format": "csv"})


def filters_of(
    group_by: Sequence[GroupName], from_s: float | None, to_s: float | None, project: str | None
) -> dict[str, str | None]:
    """Return the parameters of a report."""
    times = {name: None if at_s is None else repr(at_s) for name, at_s in (("from", from_s), ("to", to_s))}
    return {"group_by": ",".join(group_by), **times, "project": project}
