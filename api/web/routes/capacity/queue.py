"""/v1/queue: the queue in scheduling order."""

from collections import defaultdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from regroup.api.schemas.capacity.queue import ProjectQueue, Queue, QueuedJob
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, Limit, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.capacity import queue
from regroup.service.spec.types import Name

Reader = Annotated[Sender, Depends(ForEveryone("lists the jobs of the projects that the sender sees"))]
Project = Annotated[Name | None, Query(description="Only jobs of this project")]
Offset = Annotated[int, Query(ge=0, lt=2**31, description="Number of jobs to skip")]
router = APIRouter(route_class=OperationRoute, prefix="/v1/queue", tags=["queue"], responses=responses())


@router.get("")
async def get(
    services: TheServices, sender: Reader, project: Project = None, offset: Offset = 0, limit: Limit = 200
) -> Queue:
    """Get the queue in scheduling order: why each job waits, and its predicted start.

    Jobs of projects that you do not see are left out; positions count them.
    """
    by_project = defaultdict[str, list[queue.QueuedJob]](list)
    everything = await services.queue_list.jobs()
    for job in everything:
        by_project[job.project].append(job)
    visible = {name for name in by_project if sender.sees(name)}
    seen = [job for job in everything if job.project in visible]
    matching = seen if project is None else by_project.get(project, []) if project in visible else []
    return Queue(
        jobs=[QueuedJob.model_validate(job) for job in matching[offset : offset + limit]],
        total=len(matching),
        projects=[
            ProjectQueue(project=name, jobs=len(by_project[name]), devices=queue.devices_of(by_project[name]))
            for name in sorted(visible)
        ],
    )
