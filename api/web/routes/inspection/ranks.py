"""/v1/jobs/{job}/ranks: place and state of each rank."""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query

from regroup.api.schemas.inspection.ranks import RankView, RankViewList
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobToRead, TheJobs
from regroup.service.spec.types import MAX_RANKS

router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}", tags=["jobs"], responses=responses())


@router.get("/ranks")
async def ranks(
    job: JobToRead,
    jobs: TheJobs,
    first: Annotated[int, Query(ge=0, lt=MAX_RANKS, description="First rank of the answer")] = 0,
    limit: Annotated[int, Query(ge=1, le=4096, description="Maximum number of ranks in the answer")] = 1024,
) -> RankViewList:
    """List the ranks of the newest generation: node, step, phase, and how long each works and waits in a step.

    The work of a rank is measured after some steps. Without it, the state is that of its step and phase.
    """
    found = await jobs.ranks(job)
    shown = [RankView.model_validate(each) for each in found.ranks if each.rank >= first][:limit]
    counts = Counter(str(each.state) for each in found.ranks)
    return RankViewList(
        generation=found.generation, total=len(found.ranks), counts=counts, step_s=found.step_s,
        median_work_s=found.median_work_s, ranks=shown,
    )  # fmt: skip
