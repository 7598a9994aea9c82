"""Curves of metrics: of one job with all its lines, and of many jobs in few points."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from regroup.api.schemas.comparison.job_curves import JobCurve, JobCurves
from regroup.api.schemas.history import Curves
from regroup.api.web import presenters
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, JobToRead, TheJobs
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import Permission
from regroup.service.spec.types import Name
from regroup.service.store.rows.curves import CurveSelection

MAX_JOBS = 100
MetricName = Annotated[str, Field(min_length=1, max_length=100, pattern=r'^[^"\\$\x00-\x1f\x7f]+$')]
JobReference = Annotated[str, Field(min_length=1, max_length=64)]
Reader = Annotated[Sender, Depends(ForEveryone("needs permission to read each of the jobs"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1", tags=["curves"], responses=responses())
_CURVES = ("loss", "validation_loss", "grad_norm", "tokens_per_s", "step_s", "mfu", "peak_bytes")
_SHORT_CURVES = ("loss", "step_s")


@router.get("/jobs/{job}/curves")
async def curves(
    job: JobToRead,
    jobs: TheJobs,
    metric: Annotated[
        list[MetricName] | None,
        Query(max_length=12, description="Metrics of steps: columns of `GET …/steps`, `step_s`, or names in `extra`"),
    ] = None,
    points: Annotated[int, Query(ge=2, le=2000, description="Largest number of points of a line")] = 400,
    from_step: Annotated[int, Query(ge=1, lt=2**53, description="First step")] = 1,
    to_step: Annotated[int | None, Query(ge=1, lt=2**53, description="Last step; the newest one if absent")] = None,
) -> Curves:
    """Get curves of metrics in few points: committed steps, repeated steps, and predictions.

    A point stands for neighbouring steps: their mean, smallest and largest value.
    """
    names = list(dict.fromkeys(metric or _CURVES))
    found, predicted = await jobs.curves(job, CurveSelection(names, points, from_step, to_step))
    return presenters.curves(names, found, predicted)


@router.get("/curves")
async def of_jobs(
    jobs: TheJobs,
    sender: Reader,
    job: Annotated[
        list[JobReference], Query(min_length=1, max_length=MAX_JOBS, description="Ids or names of jobs; ids are faster")
    ],
    metric: Annotated[
        list[MetricName] | None,
        Query(max_length=8, description="Metrics, as for the curves of one job; `loss` and `step_s` if absent"),
    ] = None,
    points: Annotated[int, Query(ge=2, le=100, description="Largest number of points of a line")] = 30,
    project: Annotated[Name, Query(description="Project in which names are looked up")] = "default",
) -> JobCurves:
    """Get short curves of many jobs: the values of single committed steps at equal distances.

    The first and the newest step are among them. A metric that few steps have, such as `validation_loss`, can lack
    values; the curves of one job contain all of them.
    """
    names = list(dict.fromkeys(metric or _SHORT_CURVES))
    found = await jobs.get_many(list(dict.fromkeys(job)), project, sender)
    for each in found:
        sender.require(Permission.JOBS_READ, each.project)
    sampled = await jobs.sample_curves(found, names, points)
    return JobCurves(
        jobs=[
            JobCurve(
                job=each.id, name=each.name, project=each.project, steps=[point.step for point in sampled[each.id]],
                times_s=[point.time_s for point in sampled[each.id]],
                values={name: [point.values.get(name) for point in sampled[each.id]] for name in names},
            )
            for each in found
        ]
    )  # fmt: skip
