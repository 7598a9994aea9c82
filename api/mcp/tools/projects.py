"""Tools for projects, the use of devices, and audit records."""

from typing import Annotated, Any, Literal

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Count, Cursor, InProject, OneProject, Time
from regroup.api.mcp.calls.tool import changes, reads
from regroup.api.schemas.audit import AuditRecord
from regroup.api.schemas.projects import Devices, Project, ProjectSettings
from regroup.api.schemas.usage import UsageRow
from regroup.api.schemas.wire import Wire
from regroup.service.spec.budget import Amount

GroupBy = Annotated[
    tuple[Literal["project", "user", "class", "job"], ...],
    Field(min_length=1, max_length=4, description="Groups of the report"),
]
_BY_PROJECT: GroupBy = ("project",)


class ProjectLine(Wire):
    """A project: its quota and its use. `get_project` has its other settings."""

    name: str
    guaranteed: int
    borrowable: int | None
    limit: int | None
    weight: float
    spares: int
    allocated: int
    """Number of devices that its jobs use."""
    running: int
    queued: int
    budget: dict[str, Any] | None
    budget_used: float | None
    etag: str


class Projects(Wire):
    """Projects, ordered by name."""

    projects: list[ProjectLine]
    total: int


class Usage(Wire):
    """Use of devices in a window of time."""

    rows: list[UsageRow]
    next_cursor: str | None


class UsageText(Wire):
    """Use of devices as CSV."""

    csv: str
    lines: int
    """Number of lines, with the head."""
    next_line: int | None
    """`from_line` of the next part; null at the end."""


class AuditRecords(Wire):
    """Changes that identities requested, newest first."""

    records: list[AuditRecord]
    next_cursor: str | None


async def project_state(caller: Caller, project: str) -> str:
    """Return the entity tag of a project."""
    return (await caller.client.project(project)).etag


@reads("List projects")
async def list_projects(caller: Caller, limit: Count = 50) -> Projects:
    """List projects with quotas, limits, budgets and present use."""
    found = await caller.client.projects()
    return Projects(projects=[_line(each) for each in found[:limit]], total=len(found))


@reads("Get a project")
async def get_project(caller: Caller, project: OneProject) -> Project:
    """Get the quota, limits, defaults and use of a project."""
    return await caller.client.project(project)


@changes("Change the quota of a project", state=project_state, is_destructive=True, is_idempotent=True)
async def set_project_quota(
    caller: Caller,
    project: OneProject,
    guaranteed: Annotated[Devices | None, Field(description="Devices that it always gets; null to keep it")] = None,
    borrowable: Annotated[
        Devices | None, Field(description="Guaranteed devices that others may borrow; null to keep it")
    ] = None,
    limit: Annotated[Devices | None, Field(description="Most devices that it may use; null to keep it")] = None,
    weight: Annotated[
        float | None, Field(ge=1e-6, le=1e6, description="Share compared with other projects; null to keep it")
    ] = None,
    spares: Annotated[int | None, Field(ge=0, le=10_000, description="Spare nodes; null to keep it")] = None,
) -> ProjectLine:
    """Change the quota of a project: the given values only. Running jobs continue. A new project is created."""
    given = {
        "guaranteed": guaranteed, "borrowable": borrowable, "limit": limit, "weight": weight, "spares": spares,
    }  # fmt: skip
    settings = await _settings(caller, project)
    changed = {**settings, **{name: value for name, value in given.items() if value is not None}}
    return _line(await caller.client.set_project(project, changed))


@changes("Set the budget of a project", state=project_state, is_destructive=True, is_idempotent=True)
async def set_project_budget(
    caller: Caller,
    project: OneProject,
    device_hours: Annotated[Amount | None, Field(description="Device-hours; set this or cost")] = None,
    cost: Annotated[Amount | None, Field(description="Money, in the currency of the server's price table")] = None,
    since_s: Time = None,
) -> ProjectLine:
    """Set what the jobs of a project may use together. Without device_hours and cost, it has no budget any more."""
    budget: dict[str, Any] | None = None
    if device_hours is not None or cost is not None:
        budget = {"device_hours": device_hours, "cost": cost, "since": since_s or 0.0}
    settings = await _settings(caller, project)
    return _line(await caller.client.set_project(project, {**settings, "budget": budget}))


@reads("Report the use of devices")
async def report_usage(
    caller: Caller,
    group_by: GroupBy = _BY_PROJECT,
    from_s: Time = None,
    to_s: Time = None,
    project: InProject = None,
    limit: Count = 50,
    cursor: Cursor = None,
) -> Usage:
    """Report device-hours and cost in a window of time, by project, user, accelerator class or job."""
    page = await caller.client.usage_page(
        group_by=group_by, from_s=from_s, to_s=to_s, project=project, cursor=cursor, size=limit
    )
    return Usage(rows=list(page.items), next_cursor=page.next_cursor)


@reads("Export the use of devices as CSV")
async def export_usage_csv(
    caller: Caller,
    group_by: GroupBy = _BY_PROJECT,
    from_s: Time = None,
    to_s: Time = None,
    project: InProject = None,
    from_line: Annotated[int, Field(ge=0, lt=2**31, description="Number of lines to skip after the head")] = 0,
) -> UsageText:
    """Report device-hours and cost as CSV, for example to close a month. Long reports come in parts."""
    text = await caller.client.usage_csv(group_by, from_s=from_s, to_s=to_s, project=project)
    head, *lines = text.splitlines()
    shown = lines[from_line : from_line + _CSV_LINES]
    following = from_line + len(shown)
    return UsageText(
        csv="\n".join([head, *shown]) + "\n", lines=len(lines) + 1,
        next_line=following if following < len(lines) else None,
    )  # fmt: skip


@reads("List changes")
async def list_changes(
    caller: Caller,
    project: InProject = None,
    actor: Annotated[str | None, Field(max_length=200, description="Only changes by this identity")] = None,
    action: Annotated[
        str | None, Field(max_length=100, description="Noun and verb, for example `projects.put` or `jobs.cancel`")
    ] = None,
    object: Annotated[str | None, Field(max_length=300, description="Id or name of the changed object")] = None,
    since_s: Time = None,
    until_s: Time = None,
    limit: Count = 20,
    cursor: Cursor = None,
) -> AuditRecords:
    """List audit records, newest first: who changed what, for example a quota, with the values before and after."""
    page = await caller.client.audit_page(
        project=project, actor=actor, action=action, object=object, since_s=since_s, until_s=until_s, cursor=cursor,
        size=limit,
    )  # fmt: skip
    return AuditRecords(records=list(page.items), next_cursor=page.next_cursor)


_CSV_LINES = 200


async def _settings(caller: Caller, project: str) -> dict[str, Any]:
    """Return the settings of a project, which a change replaces as a whole. `If-Match` protects those in between."""
    found = await caller.client.project(project)
    return found.model_dump(mode="json", include=set(ProjectSettings.model_fields))


def _line(project: Project) -> ProjectLine:
    return ProjectLine.model_validate(project.model_dump(mode="json"))
