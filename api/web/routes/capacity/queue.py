"""/v1/queue: the queue in scheduling order."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from regroup.api.schemas.capacity.queue import ProjectQueue, Queue
from regroup.api.web.encoded_answers import NOT_MODIFIED, IfNoneMatch
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, Limit, TheAnswers, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.capacity.queue import OrderedQueue
from regroup.service.spec.types import Name

Reader = Annotated[Sender, Depends(ForEveryone("lists the jobs of the projects that the sender sees"))]
Project = Annotated[Name | None, Query(description="Only jobs of this project")]
Offset = Annotated[int, Query(ge=0, lt=2**31, description="Number of jobs to skip")]
router = APIRouter(route_class=OperationRoute, prefix="/v1/queue", tags=["queue"], responses=responses())


@router.get("", response_model=Queue, responses=NOT_MODIFIED)
async def get(
    services: TheServices,
    answers: TheAnswers,
    sender: Reader,
    project: Project = None,
    offset: Offset = 0,
    limit: Limit = 200,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Get the queue in scheduling order: why each job waits, and its predicted start.

    Jobs of projects that you do not see are left out; positions count them.
    """
    queue = await services.queue_list.read()
    visible = frozenset(name for name in queue.projects if sender.sees(name))
    matching = visible if project is None else visible & {project}
    form = ("queue", visible, matching, offset, limit)
    return answers.answer(form, queue, partial(_queue, queue, visible, matching, offset, limit), if_none_match)


def _queue(queue: OrderedQueue, visible: frozenset[str], matching: frozenset[str], offset: int, limit: int) -> Queue:
    return Queue(
        jobs=queue.part(matching, offset, limit),
        total=sum(queue.projects[name].jobs for name in matching),
        projects=[
            ProjectQueue(project=name, jobs=found.jobs, devices=found.devices)
            for name, found in queue.projects.items()
            if name in visible
        ],
    )
