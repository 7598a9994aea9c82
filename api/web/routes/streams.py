"""Events, steps and logs of a job, as a list or as a stream of server-sent events.

A stream resumes after `Last-Event-ID`. It ends with an event `end` when the job has ended and all entries are sent.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from regroup.api.schemas.jobs import Event, EventList, LogPiece, Step, StepList
from regroup.api.web.event_stream import KEEPALIVE_S, stream_events
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import After, Limit, NamedJob, TheJobs, TheServices
from regroup.service.operations.logs import LogPosition, read_chunk, stream_log
from regroup.service.store import records

_STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Entries"}
router = APIRouter(prefix="/v1/jobs/{job}", tags=["streams"], responses=responses())

Follow = Annotated[bool, Query(description="Stream entries as server-sent events as they arrive")]
LastEventId = Annotated[str | None, Header(max_length=100, description="Resume the stream after this id")]
T = TypeVar("T")


@router.get("/events", response_model=EventList, responses={200: _STREAM})
async def events(
    job: NamedJob,
    jobs: TheJobs,
    after: After = 0,
    limit: Limit = 1000,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> EventList | StreamingResponse:
    """Get the job's history: events numbered above `after`."""
    if follow:
        items = jobs.follow_events(job, _resume_position(last_event_id, after))
        return stream_events(_stream(items, "event", lambda event: (str(event.number), _event(event))))
    return EventList(events=[_event(event) for event in await jobs.events(job, after, limit)])


@router.get("/steps", response_model=StepList, responses={200: _STREAM})
async def steps(
    job: NamedJob,
    jobs: TheJobs,
    after: After = 0,
    limit: Limit = 1000,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> StepList | StreamingResponse:
    """Get the metrics of steps.

    The list contains committed steps above step `after`. The stream contains every row numbered above `after`; a row of
    a later generation replaces the rows of its step and of later steps.
    """
    if follow:
        items = jobs.follow_steps(job, _resume_position(last_event_id, after))
        return stream_events(_stream(items, "step", lambda row: (str(row.number), _step(row))))
    return StepList(steps=[_step(row) for row in await jobs.steps(job, after, limit)])


@router.get("/logs", response_class=StreamingResponse, responses={200: _STREAM | {"content": {"text/plain": {}}}})
async def logs(
    job: NamedJob,
    services: TheServices,
    rank: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    generation: Annotated[
        int | None, Query(ge=1, lt=2**31, description="If absent: the newest, and with `follow` all later ones")
    ] = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    offset: After = 0,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Get a rank's output as plain text, or as a stream across generations."""
    newest = max(1, job.generation)
    position = LogPosition(generation or newest, offset)
    if follow:
        if last_event_id is not None:
            position = _log_position(last_event_id, rank)
        pieces = stream_log(
            services.store, services.cluster, job, rank, stream, position, only=generation is not None, follow=True
        )

        def to_wire(piece: Any) -> tuple[str, BaseModel]:
            at = piece.next
            wire = LogPiece(
                generation=piece.position.generation,
                rank=rank,
                stream=stream,
                offset=piece.position.offset,
                text=piece.text,
            )
            return f"{at.generation}.{rank}.{at.offset}", wire

        return stream_events(_stream(pieces, "log", to_wire))
    await read_chunk(services.cluster, job, position, rank, stream, 1)  # 404 before the first byte
    pieces = stream_log(services.store, services.cluster, job, rank, stream, position, only=True, follow=False)

    async def text() -> AsyncGenerator[str]:
        async for piece in pieces:
            if piece is not None:
                yield piece.text

    return StreamingResponse(text(), media_type="text/plain; charset=utf-8")


async def _stream(
    items: AsyncIterator[T | None], kind: str, to_wire: Callable[[T], tuple[str, BaseModel]]
) -> AsyncGenerator[bytes]:
    last_sent_s = time.monotonic()
    yield KEEPALIVE_COMMENT  # sends the headers now, not with the first event
    async for item in items:
        if item is not None:
            position, wire = to_wire(item)
            yield format_sse_event(data_str=wire.model_dump_json(), event=kind, id=position)
        elif time.monotonic() - last_sent_s < KEEPALIVE_S:
            continue
        else:
            yield KEEPALIVE_COMMENT
        last_sent_s = time.monotonic()
    yield format_sse_event(data_str="{}", event="end")


def _resume_position(last_event_id: str | None, after: int) -> int:
    if last_event_id is None:
        return after
    if not last_event_id.isdecimal() or len(last_event_id) > 15:
        raise HTTPException(400, f"Last-Event-ID {last_event_id!r} is not an id of this stream")
    return int(last_event_id)


def _log_position(last_event_id: str, rank: int) -> LogPosition:
    parts = last_event_id.split(".")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) <= 15 for part in parts) or int(parts[1]) != rank:
        raise HTTPException(400, f"Last-Event-ID {last_event_id!r} is not GENERATION.RANK.OFFSET of rank {rank}")
    return LogPosition(int(parts[0]), int(parts[2]))


def _event(event: records.Event) -> Event:
    return Event.model_validate(event)


def _step(row: records.Step) -> Step:
    samples_hash = None if row.samples_hash is None else f"{row.samples_hash:016x}"
    return Step.model_validate({**vars(row), "samples_hash": samples_hash})
