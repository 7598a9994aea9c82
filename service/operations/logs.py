"""A rank's output from one generation to the next, as one stream."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.archived_logs import read_archived
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store

_CHUNK_BYTES = 64 * 1024
_POLL_S = 0.5  # rank output is no event in the store


@dataclass(frozen=True)
class Place:
    """A position in a rank's output."""

    generation: int
    offset: int
    """Bytes."""


@dataclass(frozen=True)
class LogPiece:
    """Some output and the place after it."""

    text: str
    place: Place
    """Where it begins."""
    next: Place


async def read_piece(cluster: Cluster, job: JobRow, place: Place, rank: int, stream: str, limit: int) -> LogChunk:
    """Output from `place` on, at most `limit` bytes: from the node that has it, else from durable storage.

    Args:
        job: as it is now. Storage is asked only about what agents may have left there: they did for a job that holds
            no devices, and for generations before its newest.

    Raises:
        NotFoundError: neither has it.
        UnavailableError: one that may have it does not answer.
    """
    try:
        return await cluster.read_log(job.id, place.generation, rank, stream, place.offset, limit)
    except (NotFoundError, UnavailableError) as error:
        ended = place.generation < job.generation or (job.generation and not job.state.holds_devices)
        if not ended:
            raise
        try:
            return await read_archived(job.storage_uri, place.generation, rank, stream, place.offset, limit)
        except NotFoundError:
            if isinstance(error, UnavailableError):
                raise error from None
            raise


async def read_log(
    store: Store, cluster: Cluster, job: JobRow, rank: int, stream: str, place: Place, *, only: bool, follow: bool
) -> AsyncGenerator[LogPiece | None]:
    """Output from `place` on; None while nothing comes.

    Args:
        only: stop at the end of that generation instead of going on into the next.
        follow: wait for more until the job is over.
    """
    while True:
        job = await store.job(job.id)
        over = job.state.is_terminal
        newest = max((formed.number for formed in await store.generations(job.id)), default=0)
        ended, found = False, False
        try:
            chunk = await read_piece(cluster, job, place, rank, stream, _CHUNK_BYTES)
        except NotFoundError:
            # Not started yet, or in a generation that had no such rank, or gone with its node.
            ended = place.generation < newest
        except UnavailableError:
            if not follow:
                raise
        else:
            following = Place(place.generation, chunk.next_offset)
            if found := chunk.next_offset > place.offset:
                yield LogPiece(chunk.data, place, following)
                place = following
            ended = chunk.complete
        if found and not ended:
            continue
        if ended and place.generation < newest and not only:
            place = Place(place.generation + 1, 0)
            continue
        if over or not follow or (ended and only):
            return
        yield None
        await store.changes.wait(job.id, store.changes.mark(), _POLL_S)
