"""/v1/jobs/{job}/logs/…: search in the output of all ranks, and follow several ranks in one stream."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from regroup.api.schemas import history
from regroup.api.schemas.inspection.logs import LogMatch, LogMatches, LogPieceList
from regroup.api.web.event_stream import frames_of, stream_events
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobWithOutput, TheJobs, TheServices
from regroup.api.web.routes.streams import Follow
from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.inspection.log_search import LogPlace, LogQuery, search_log
from regroup.service.operations.inspection.merged_log import (
    MAX_OUTPUTS,
    MergedPiece,
    Positions,
    follow_merged,
    parse_positions,
)
from regroup.service.operations.logs import LogPosition, read_chunk
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.types import MAX_RANKS
from regroup.service.store.rows.records import JobRow

StreamName = Literal["stdout", "stderr"]
RankNumber = Annotated[int, Field(ge=0, lt=MAX_RANKS)]
OnlyGeneration = Annotated[int | None, Query(ge=1, lt=2**31, description="Only this generation; all if absent")]
MAX_TAIL_BYTES = 2**16
_END = 2**53 - 1
"""An offset after the end of every output: a read from there shows the length."""
_STREAM: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Pieces"}
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}/logs", tags=["streams"], responses=responses())


@router.get("/search")
async def search(
    job: JobWithOutput,
    jobs: TheJobs,
    services: TheServices,
    text: Annotated[str, Query(min_length=1, max_length=200, description="Text that a line must contain")],
    rank: Annotated[RankNumber | None, Query(description="Only this rank; all if absent")] = None,
    generation: OnlyGeneration = None,
    stream: Annotated[StreamName | None, Query(description="Only this output; both if absent")] = None,
    case: Annotated[bool, Query(description="Distinguish upper and lower case")] = False,
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum number of lines in the answer")] = 100,
    cursor: Annotated[str | None, Query(max_length=100, description="`next_cursor` of the answer before")] = None,
) -> LogMatches:
    """Search the stored output of all ranks and generations for lines with a text.

    An answer searches at most 64 MiB, for at most about 5 s; `next_cursor` continues. Lines have no times: they are
    ordered by generation, rank and output.
    """
    try:
        after = None if cursor is None else LogPlace.parse(cursor)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    query = LogQuery(text, rank, generation, stream, case, limit)
    found = await search_log(services.cluster, job, await jobs.generations(job), query, after)
    return LogMatches(
        matches=[LogMatch.model_validate(each) for each in found.matches],
        next_cursor=None if found.next is None else str(found.next),
        searched_bytes=found.searched_bytes,
        unread=found.unread,
    )


@router.get("/merged", response_model=LogPieceList, responses={200: _STREAM})
async def merged(
    job: JobWithOutput,
    jobs: TheJobs,
    services: TheServices,
    rank: Annotated[
        list[RankNumber] | None, Query(max_length=MAX_OUTPUTS, description="Ranks; the first ones if absent")
    ] = None,
    stream: Annotated[
        list[StreamName] | None, Query(max_length=2, description="Outputs of each rank; both if absent")
    ] = None,
    generation: OnlyGeneration = None,
    tail_bytes: Annotated[
        int, Query(ge=0, le=MAX_TAIL_BYTES, description="Bytes of each output before its end with which it begins")
    ] = 8192,
    follow: Follow = False,
    last_event_id: Annotated[str | None, Header(max_length=4000, description="Resume the stream after this id")] = None,
) -> LogPieceList | StreamingResponse:
    """Get the end of the output of several ranks, or with `follow` one stream of it as it arrives.

    It has at most 64 outputs: of 32 ranks with both outputs. It begins near the end of the newest generation, or of
    `generation`. Output that was written before the request comes rank by rank: lines have no times.
    """
    newest = generation or max(1, job.generation)
    streams = sorted(set(stream or ("stdout", "stderr")))
    world = next((each.world_size for each in await jobs.generations(job) if each.number == newest), 1)
    ranks = sorted(set(rank)) if rank else range(min(world, MAX_OUTPUTS // len(streams)))
    outputs = [(each, name) for each in ranks for name in streams]
    if len(outputs) > MAX_OUTPUTS:
        raise HTTPException(
            400, f"{len(outputs)} outputs exceed {MAX_OUTPUTS}; choose fewer ranks, or one of stdout and stderr"
        )
    if last_event_id is None:
        positions = Positions()
        for output in outputs:
            positions[output] = await _tail(services.cluster, job, newest, output, tail_bytes)
    else:
        try:
            positions = parse_positions(last_event_id, outputs)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
    if not follow:
        return LogPieceList(pieces=await _present(services.cluster, job, positions))
    pieces = follow_merged(services.log_followers, job.id, positions, generation)
    return stream_events(frames_of(pieces, _frame))


async def _tail(
    cluster: Cluster, job: JobRow, generation: int, output: tuple[int, str], tail_bytes: int
) -> LogPosition:
    """Return the position before the last bytes of an output; its beginning if it has none yet."""
    try:
        end = await read_chunk(cluster, job, LogPosition(generation, _END), *output, 1)
    except (NotFoundError, UnavailableError):
        return LogPosition(generation, 0)
    return LogPosition(generation, max(0, end.size - tail_bytes))


async def _present(cluster: Cluster, job: JobRow, positions: Positions) -> list[history.LogPiece]:
    """Return the output from each position to the present end, output by output."""
    found = list[history.LogPiece]()
    for (rank, stream), at in sorted(positions.items()):
        try:
            part = await read_chunk(cluster, job, at, rank, stream, MAX_TAIL_BYTES)
        except (NotFoundError, UnavailableError):
            continue  # this rank printed nothing, or its node does not answer
        if part.data:
            found.append(
                history.LogPiece(generation=at.generation, rank=rank, stream=stream, offset=part.offset, text=part.data)
            )
    return found


def _frame(merged: MergedPiece) -> bytes:
    at = merged.piece.position
    wire = history.LogPiece(
        generation=at.generation, rank=merged.rank, stream=merged.stream, offset=at.offset, text=merged.piece.text
    )
    return format_sse_event(data_str=wire.model_dump_json(), event="log", id=merged.positions)
