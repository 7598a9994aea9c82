"""Output of a rank over all generations, as one stream."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.archived_logs import read_archived
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store

_CHUNK_BYTES = 64 * 1024
_POLL_S = 0.5  # the store emits no event for rank output


@dataclass(frozen=True)
class LogPosition:
    """A position in a rank's output."""

    generation: int
    offset: int
    """Bytes."""


@dataclass(frozen=True)
class LogPiece:
    """Output and its position."""

    text: str
    position: LogPosition
    """Position of the first byte."""
    next: LogPosition


async def read_chunk(
    cluster: Cluster, job: JobRow, position: LogPosition, rank: int, stream: str, limit: int
) -> LogChunk:
    """Read output from `position`, at most `limit` bytes: from the rank's node, else from durable storage.

    Args:
        job: current row. Durable storage has only the output of generations that have ended: those before the newest,
            and all generations of a job without devices.

    Raises:
        NotFoundError: neither the node nor the storage has the output.
        UnavailableError: the node or the storage does not answer.
    """
    try:
        return await cluster.read_log(job.id, position.generation, rank, stream, position.offset, limit)
    except (NotFoundError, UnavailableError) as error:
        has_ended = position.generation < job.generation or (job.generation and not job.state.has_allocations)
        if not has_ended:
            raise
        try:
            return await read_archived(job.storage_uri, position.generation, rank, stream, position.offset, limit)
        except NotFoundError:
            if isinstance(error, UnavailableError):
                raise error from None
            raise


async def stream_log(
    store: Store,
    cluster: Cluster,
    job: JobRow,
    rank: int,
    stream: str,
    position: LogPosition,
    *,
    only: bool,
    follow: bool,
) -> AsyncGenerator[LogPiece | None]:
    """Yield output from `position`; None while there is no new output.

    Args:
        only: stop at the end of that generation; otherwise continue with the next generations.
        follow: wait for new output until the job ends.
    """
    while True:
        job = await store.job(job.id)
        newest = max((generation.number for generation in await store.generations(job.id)), default=0)
        has_ended, has_output = False, False
        try:
            chunk = await read_chunk(cluster, job, position, rank, stream, _CHUNK_BYTES)
        except NotFoundError:
            # The rank has not started, or the generation had no such rank, or the node is lost.
            has_ended = position.generation < newest
        except UnavailableError:
            if not follow:
                raise
        else:
            after = LogPosition(position.generation, chunk.next_offset)
            if has_output := chunk.next_offset > position.offset:
                yield LogPiece(chunk.data, position, after)
                position = after
            has_ended = chunk.complete
        if has_output and not has_ended:
            continue
        if has_ended and position.generation < newest and not only:
            position = LogPosition(position.generation + 1, 0)
            continue
        if job.state.is_terminal or not follow or (has_ended and only):
            return
        yield None
        await store.changes.wait(job.id, store.changes.mark(), _POLL_S)
