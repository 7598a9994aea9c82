"""/v1/projects: quotas, limits and defaults of projects."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from regroup.api.schemas.projects import Project, ProjectList, ProjectSettings
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForCluster, ForEveryone, ForProject, TheServices
from regroup.service.cluster_state.budgets import project_budget_of
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.projects import ProjectState
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.spec.project_limits import ProjectLimits
from regroup.service.spec.types import Name
from regroup.service.store.rows.records import ProjectRow

ProjectName = Annotated[Name, Path(description="Name of the project")]
Lister = Annotated[Sender, Depends(ForEveryone("lists the projects that the sender sees"))]
ReadableProject = Annotated[str, Depends(ForProject(Permission.PROJECT_READ))]
QuotaOperator = Annotated[Sender, Depends(ForCluster(ClusterPermission.PROJECTS_WRITE))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/projects", tags=["projects"], responses=responses())


@router.get("")
async def list_(services: TheServices, sender: Lister) -> ProjectList:
    """List the projects that you see and that have settings or unfinished jobs."""
    states = await services.projects.list_projects()
    return ProjectList(projects=[_project(state) for state in states if sender.sees(state.row.name)])


@router.get("/{name}")
async def get(name: ReadableProject, services: TheServices) -> Project:
    """Get a project. A project without settings has no limits."""
    return _project(await services.projects.get(name))


@router.put("/{name}", responses=responses("body_too_large", "malformed_json"))
async def put(name: ProjectName, settings: ProjectSettings, services: TheServices, sender: QuotaOperator) -> Project:
    """Create a project, or replace its settings.

    The settings apply to the next scheduling decisions. Running jobs continue, even above a lowered limit.
    """
    fields = settings.model_dump(mode="json", exclude={"admits"})
    admits = settings.admits.model_dump(mode="json", exclude_none=True)
    return _project(await services.projects.put(ProjectRow(name, admits=admits, **fields), author=sender.author))


@router.delete("/{name}", status_code=204, responses=responses("conflict"))
async def delete(name: ProjectName, services: TheServices, sender: QuotaOperator) -> None:
    """Delete the settings of a project that has no unfinished jobs."""
    await services.projects.remove(name, author=sender.author)


def _project(state: ProjectState) -> Project:
    row = state.row
    return Project(
        name=row.name,
        guaranteed=row.guaranteed,
        borrowable=row.borrowable,
        limit=row.limit,
        weight=row.weight,
        spares=row.spares,
        budget=project_budget_of(row),
        admits=ProjectLimits.model_validate(row.admits),
        defaults=row.defaults,
        allocated=state.allocated,
        running=state.running,
        queued=state.queued,
        etag=row.etag,
        budget_used=state.budget_used,
    )
