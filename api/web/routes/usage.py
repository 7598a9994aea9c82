"""/v1/usage: device-hours and cost of projects, users, accelerators and jobs."""

import csv
import io
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from starlette.responses import StreamingResponse

from regroup.api.schemas.usage import UsagePage, UsageRow
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForAnyProject, TheServices, TheTokens
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.usage import UsageRow as Row
from regroup.service.policy.access.roles import Permission
from regroup.service.spec.types import Name
from regroup.service.store.usage import Group, UsageSelection

_COLUMN = {Group.PROJECT: "project", Group.USER: "user", Group.CLASS: "accelerator", Group.JOB: "job"}
_AMOUNTS = ("device_hours", "cost", "currency", "unpriced_device_hours", "unpriced")
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The report, as JSON or CSV"}
}
router = APIRouter(route_class=OperationRoute, prefix="/v1/usage", tags=["usage"], responses=responses())


def _check_groups(text: str) -> str:
    names = text.split(",")
    if unknown := [name for name in names if name not in set(Group)]:
        message = "{name} is not a group: use {groups}, separated by commas"
        raise PydanticCustomError("group", message, {"name": repr(unknown[0]), "groups": ", ".join(Group)})
    if len(set(names)) < len(names):
        raise PydanticCustomError("group", "names a group twice")
    return text


Reader = Annotated[Sender, Depends(ForAnyProject(Permission.PROJECT_READ))]
Time = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_GROUP = "|".join(Group)
GroupBy = Annotated[
    str,
    Query(
        max_length=100,
        description=f"Groups of the report, separated by commas: {', '.join(Group)}",
        json_schema_extra={"pattern": f"^({_GROUP})(,({_GROUP}))*$"},  # the check has the better message
    ),
    AfterValidator(_check_groups),
]


@router.get("", response_model=UsagePage, responses=_CSV)
async def get(
    request: Request,
    services: TheServices,
    tokens: TheTokens,
    sender: Reader,
    group_by: GroupBy = "project",
    from_s: Annotated[Time, Query(alias="from", description="Start of the window, Unix seconds")] = 0.0,
    to_s: Annotated[Time | None, Query(alias="to", description="End of the window; now if absent")] = None,
    project: Annotated[Name | None, Query(description="Only this project; all that you see if absent")] = None,
    format: Annotated[Literal["json", "csv"] | None, Query(description="Form; as `Accept` requests if absent")] = None,
    page_size: Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows on a page")] = 1000,
    page_token: Annotated[str, Query(max_length=4000, description="`next_page_token` of the previous page")] = "",
) -> Any:
    """Report the device-hours that jobs held in a window of time, and their cost.

    Each allocated device counts from its allocation to its release, clipped exactly to the window. Members see their
    projects, operators all. CSV (`format`, or `Accept: text/csv`) has all rows, without pages. A page token is valid
    only with the same parameters.
    """
    groups = tuple(Group(name) for name in group_by.split(","))
    filters = {"by": [group_by], "from": [repr(from_s)], "to": [repr(to_s)], "project": [repr(project)]}
    until_s, after = (to_s, None) if not page_token else _read_place(tokens.read(page_token, filters))
    selection = services.usage.select(sender, groups, from_s, until_s, project)
    if format == "csv" or (format is None and "text/csv" in request.headers.get("accept", "")):
        headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
        lines = _lines(services.usage.batches(selection), selection)
        return StreamingResponse(lines, media_type="text/csv", headers=headers)
    page = await services.usage.page(selection, after, page_size)
    place = None if page.last is None else json.dumps([selection.to_s, *page.last])
    return UsagePage(
        from_s=selection.from_s,
        to_s=selection.to_s,
        rows=[UsageRow.model_validate(row) for row in page.rows],
        next_page_token=tokens.make(place, filters) if place else "",
    )


def _read_place(text: str) -> tuple[float, tuple[str, ...]]:
    """Return the end of the window, which all pages share, and the key after which a page starts."""
    until_s, *key = cast(list[Any], json.loads(text))
    return float(until_s), tuple(key)


async def _lines(batches: AsyncGenerator[list[Row]], selection: UsageSelection) -> AsyncGenerator[str]:
    names = [_COLUMN[group] for group in selection.groups]
    names += ["job_name"] if Group.JOB in selection.groups else []
    yield _csv([*names, *_AMOUNTS])
    async for rows in batches:
        yield "".join(_csv([_text(getattr(row, name)) for name in (*names, *_AMOUNTS)]) for row in rows)


def _csv(values: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    return "" if value is None else " ".join(value) if isinstance(value, tuple) else str(value)
