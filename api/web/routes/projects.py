"""/v1/projects: what projects may hold and ask for."""

from typing import Annotated

from fastapi import APIRouter, Path

from regroup.api.schemas.projects import Project, ProjectList, ProjectSettings
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import TheServices
from regroup.service.operations.projects import ProjectState
from regroup.service.spec.project_limits import ProjectLimits
from regroup.service.spec.types import Name
from regroup.service.store.records import ProjectRow

ProjectName = Annotated[Name, Path(description="of the project")]
router = APIRouter(prefix="/v1/projects", tags=["projects"], responses=responses())


@router.get("")
async def list_(services: TheServices) -> ProjectList:
    """Projects that were set up, or have jobs that did not end."""
    return ProjectList(projects=[_project(state) for state in await services.projects.list_projects()])


@router.get("/{name}")
async def get(name: ProjectName, services: TheServices) -> Project:
    """A project. One that was not set up may hold and ask for everything."""
    return _project(await services.projects.get(name))


@router.put("/{name}", responses=responses("body_too_large", "malformed_json"))
async def put(name: ProjectName, settings: ProjectSettings, services: TheServices) -> Project:
    """Set a project up, or change it. It holds from the next turn on: what runs runs on, also above a lowered limit."""
    fields = settings.model_dump(mode="json", exclude={"admits"})
    admits = settings.admits.model_dump(mode="json", exclude_none=True)
    return _project(await services.projects.put(ProjectRow(name, admits=admits, **fields)))


@router.delete("/{name}", status_code=204, responses=responses("conflict"))
async def delete(name: ProjectName, services: TheServices) -> None:
    """Forget a project that has no jobs which did not end."""
    await services.projects.remove(name)


def _project(state: ProjectState) -> Project:
    row = state.row
    return Project(
        name=row.name,
        guaranteed=row.guaranteed,
        borrowable=row.borrowable,
        limit=row.limit,
        weight=row.weight,
        spares=row.spares,
        admits=ProjectLimits.model_validate(row.admits),
        defaults=row.defaults,
        allocated=state.allocated,
        running=state.running,
        queued=state.queued,
    )
