"""Events, steps and logs of a job, as a list or as a stream of server-sent events.

A stream resumes after `Last-Event-ID`. It ends with an event `end` when the job has ended and all entries are sent. A
client that reads too slowly gets an event `dropped` instead, and can resume.
"""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.sse import format_sse_event
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from regroup.api.schemas import history as schemas
from regroup.api.schemas.history import Event, EventList, Step, StepList
from regroup.api.web.event_stream import LastEventId, frames_of, resume_position, stream_events
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import After, JobToRead, JobWithOutput, Limit, TheJobs, TheServices
from regroup.service.operations.log_followers import LogSource
from regroup.service.operations.logs import LogPiece, LogPosition, read_chunk, read_log
from regroup.service.store.rows import records

_STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Entries"}
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}", tags=["streams"], responses=responses())

Follow = Annotated[bool, Query(description="Stream entries as server-sent events as they arrive")]
MAX_PART_BYTES = 2**20
"""Largest part of a rank's output in an answer that is not a stream."""


@router.get("/events", response_model=EventList, responses={200: _STREAM})
async def events(
    job: JobToRead,
    jobs: TheJobs,
    after: After = 0,
    limit: Limit = 1000,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> EventList | StreamingResponse:
    """Get the job's history: events numbered above `after`."""
    if follow:
        items = jobs.follow_events(job, resume_position(last_event_id, after))
        return stream_events(frames_of(items, lambda entry: entry.render(_event_frame)))
    return EventList(events=[_event(event) for event in await jobs.events(job, after, limit)])


@router.get("/steps", response_model=StepList, responses={200: _STREAM})
async def steps(
    job: JobToRead,
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
        items = jobs.follow_steps(job, resume_position(last_event_id, after))
        return stream_events(frames_of(items, lambda entry: entry.render(_step_frame)))
    return StepList(steps=[_step(row) for row in await jobs.steps(job, after, limit)])


@router.get("/logs", response_class=StreamingResponse, responses={200: _STREAM | {"content": {"text/plain": {}}}})
async def logs(
    job: JobWithOutput,
    services: TheServices,
    rank: Annotated[int, Query(ge=0, lt=2**31, description="Rank whose output is read")] = 0,
    generation: Annotated[
        int | None, Query(ge=1, lt=2**31, description="If absent: the newest, and with `follow` all later ones")
    ] = None,
    stream: Annotated[Literal["stdout", "stderr"], Query(description="Output of the rank")] = "stdout",
    offset: Annotated[int, Query(ge=0, lt=2**53, description="Number of bytes to skip at the beginning")] = 0,
    limit: Annotated[
        int | None, Query(ge=1, le=MAX_PART_BYTES, description="Largest number of bytes; if absent: the whole output")
    ] = None,
    follow: Follow = False,
    last_event_id: LastEventId = None,
) -> Response:
    """Get a rank's output as plain text, or as a stream across generations.

    With `limit`, the header `Log-Next-Offset` has the offset of the next part, and `Log-Size` the number of bytes that
    the output has now. `Log-Complete` is `true` if the rank has ended and nothing follows.
    """
    newest = max(1, job.generation)
    position = LogPosition(generation or newest, offset)
    if follow:
        if last_event_id is not None:
            position = _log_position(last_event_id, rank)
        source = LogSource(job.id, rank, stream, generation)
        pieces = services.log_followers.follow(source, position)
        return stream_events(frames_of(pieces, partial(_log_frame, rank, stream)))
    if limit is not None:
        part = await read_chunk(services.cluster, job, position, rank, stream, limit)
        headers = {
            schemas.NEXT_OFFSET: str(part.next_offset), schemas.COMPLETE: str(part.complete).lower(),
            schemas.SIZE: str(part.size),
        }  # fmt: skip
        return PlainTextResponse(part.data, headers=headers)
    await read_chunk(services.cluster, job, position, rank, stream, 1)  # 404 before the first byte
    pieces = read_log(services.store, services.cluster, job, rank, stream, position)

    async def text() -> AsyncGenerator[str]:
        async for piece in pieces:
            yield piece.text

    return StreamingResponse(text(), media_type="text/plain; charset=utf-8")


def _event_frame(event: records.Event) -> bytes:
    return format_sse_event(data_str=_event(event).model_dump_json(), event="event", id=str(event.number))


def _step_frame(row: records.Step) -> bytes:
    return format_sse_event(data_str=_step(row).model_dump_json(), event="step", id=str(row.number))


def _log_frame(rank: int, stream: str, piece: LogPiece) -> bytes:
    start, at = piece.position, piece.next
    wire = schemas.LogPiece(generation=start.generation, rank=rank, stream=stream, offset=start.offset, text=piece.text)
    position = f"{at.generation}.{rank}.{at.offset}"
    return format_sse_event(data_str=wire.model_dump_json(), event="log", id=position)


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
