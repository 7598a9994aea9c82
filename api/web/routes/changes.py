"""/v1/changes: notices of what changes in all jobs, nodes and projects, as a list or as a stream without an end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse

from regroup.api.schemas import history as schemas
from regroup.api.schemas.history import NoticeList
from regroup.api.web.event_stream import LastEventId, frames_of, resume_position, stream_events
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, Limit, TheServices
from regroup.service.domain.identity import Identity
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.streams.followers import Entry
from regroup.service.operations.streams.visibility import Visibility
from regroup.service.store.notices.notice_rows import Notice

_STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Notices"}
Reader = Annotated[Sender, Depends(ForEveryone("shows notices of what the sender may read"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/changes", tags=["changes"], responses=responses())


@dataclass(frozen=True)
class SameVisibility:
    """The requirement that the sender sees the same projects as at the beginning of its stream."""

    visibility: Visibility

    def refusal(self, identity: Identity) -> str:
        """Return why the stream ends; empty if it does not."""
        if Visibility.of(identity) == self.visibility:
            return ""
        return f"{identity.subject} sees other projects now; connect again"


@router.get("", response_model=NoticeList, responses={200: _STREAM})
async def list_(
    request: Request,
    services: TheServices,
    sender: Reader,
    after: Annotated[
        int | None, Query(ge=0, lt=2**53, description="Number after which the answer begins; the newest one if absent")
    ] = None,
    limit: Limit = 1000,
    follow: Annotated[bool, Query(description="Stream notices as server-sent events as they arrive")] = False,
    last_event_id: LastEventId = None,
) -> NoticeList | StreamingResponse:
    """Get notices of changes in all jobs, nodes and projects that the sender may read.

    A stream begins with a notice `start` that has its number. It resumes after `Last-Event-ID`, and has no end.
    """
    visibility = Visibility.of(sender.identity)
    if follow:
        request.state.requirement = SameVisibility(visibility)
        begin = after if last_event_id is None else resume_position(last_event_id, 0)
        return stream_events(frames_of(services.changes.follow(begin), _frames(visibility)))
    page = await services.changes.page(after, limit)
    shown = [_notice(each) for each in page.notices if visibility.includes(each)]
    return NoticeList(notices=shown, next_after=page.next_after, is_complete=page.is_complete)


def _frames(visibility: Visibility) -> Callable[[Entry[Notice]], bytes | None]:
    def frame(entry: Entry[Notice]) -> bytes | None:
        return entry.render(_frame) if visibility.includes(entry.row) else None

    return frame


def _frame(notice: Notice) -> bytes:
    data = _notice(notice).model_dump_json(exclude_none=True)
    return format_sse_event(data_str=data, event="change", id=str(notice.number))


def _notice(notice: Notice) -> schemas.Notice:
    return schemas.Notice.model_validate({**vars(notice), "job": notice.job_id})
