"""/v1/overview: the state of the server in one answer."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from regroup.api.schemas.summaries import overview as schemas
from regroup.api.web.encoded_answers import NOT_MODIFIED, IfNoneMatch
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import server_links
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, TheAnswers, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.overview.attention import Attention
from regroup.service.operations.overview.overview import Overview, QueueReason, scope_of
from regroup.service.settings import Settings
from regroup.service.store.overview import RecentIncident

Reader = Annotated[Sender, Depends(ForEveryone("shows what the sender may read"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/overview", tags=["ops"], responses=responses())


@router.get("", response_model=schemas.Overview, responses=NOT_MODIFIED)
async def get(
    services: TheServices, answers: TheAnswers, sender: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Get the state of the server: jobs, devices, what needs a person, why jobs wait, incidents of the last day."""
    found = await services.overviews.get(sender)
    form = ("overview", scope_of(sender))
    return answers.answer(form, found, partial(_overview, found, services.settings), if_none_match)


def _overview(found: Overview, settings: Settings) -> schemas.Overview:
    devices = found.devices
    return schemas.Overview(
        time_s=found.time_s,
        summary=found.summary,
        jobs=dict(found.jobs),
        ended=dict(found.ended),
        devices=devices
        and schemas.DeviceClasses.model_validate(
            {
                "kind": devices.kind,
                "total": devices.total,
                **{str(kind): count for kind, count in devices.counts.items()},
            }
        ),
        attention=[_attention(each) for each in found.attention],
        attention_total=found.attention_total,
        queue=[_queue_reason(each) for each in found.queue],
        incidents=[_incident(each) for each in found.incidents],
        incidents_total=found.incidents_total,
        goodput=[schemas.GoodputDay.model_validate(each) for each in found.goodput],
        links=server_links(settings),
    )


def _attention(item: Attention) -> schemas.AttentionItem:
    job, hook = item.job, item.hook
    owner = job or hook
    return schemas.AttentionItem(
        kind=item.kind,
        message=item.message,
        remedy=item.remedy,
        job=job and job.id,
        job_name=job and job.name,
        project=owner and owner.project,
        node=item.node,
        cluster=item.cluster,
        hook=hook and hook.id,
    )


def _queue_reason(found: QueueReason) -> schemas.QueueReason:
    example = found.example
    return schemas.QueueReason(
        reason=found.reason, message=found.message, jobs=found.jobs, job=example.id, job_name=example.name
    )


def _incident(found: RecentIncident) -> schemas.RecentIncident:
    return schemas.RecentIncident(
        job=found.job_id,
        job_name=found.job_name,
        project=found.project,
        number=found.number,
        cause=found.cause,
        reason=_text(found.data.get("reason")),
        recovery_action=_text(found.data.get("recovery_action")),
        steps_lost=_whole(found.data.get("steps_lost")),
        seen_s=_number(_of(found.data.get("times"), "seen_s")) or found.time_s,
        total_s=_number(_of(found.data.get("durations"), "total")),
    )


def _of(values: object, name: str) -> object:
    return values.get(name) if isinstance(values, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
