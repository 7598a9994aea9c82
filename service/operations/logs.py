"""Output of a rank over all generations, as one stream: from its node, or from durable storage.

Agents write it to durable storage when they stop (`workers/agent/checkpoints.py: archive_logs`).
"""

import asyncio
import posixpath
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store

_CHUNK_BYTES = 64 * 1024
_SPLIT_BYTES = 8 * 2**20
"""Size from which a stream is archived as its beginning and its end, with a gap between them."""
_SUFFIX = {"stdout": "out", "stderr": "err"}
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


async def read_archived(storage_uri: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
    """Read up to `limit` bytes of a rank's archived output from byte `offset`.

    Raises:
        NotFoundError: that output was not archived.
        UnavailableError: durable storage failed.
    """
    uri = posixpath.join(storage_uri, "logs", f"g{generation}-rank{rank}.{_SUFFIX[stream]}")
    try:
        data, start, size = await asyncio.to_thread(_read_archive, uri, offset, limit)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no {stream} of rank {rank} in generation {generation}: no node has it, and {uri} does not exist; "
            "the generation had no such rank, or its node was lost before the job ended"
        ) from error
    except (OSError, ImportError, ValueError) as error:
        raise UnavailableError(f"the server cannot read {uri}: {type(error).__name__}: {error}") from error
    return LogChunk.of(data, start, size, is_ended=True, requested_offset=offset)


def _read_archive(uri: str, offset: int, limit: int) -> tuple[bytes, int, int]:
    """Read the bytes from `offset`, or from the end of the gap if `offset` is in it.

    Returns:
        The bytes, the offset of the first one, and the size of the stream in bytes.
    """
    from fsspec.core import url_to_fs  # imported late: it also imports the storage's package

    fs, path = url_to_fs(uri)
    size = int(fs.info(path)["size"])
    if offset + limit < size or size < _SPLIT_BYTES:
        data = fs.cat_file(path, start=offset, end=min(size, offset + limit)) if offset < size else b""
        return data, offset, size
    for last in fs.glob(f"{path}.from-*"):
        begin = int(last.rpartition("-")[2])
        whole = begin + int(fs.info(last)["size"])
        if offset >= size:
            start = max(offset, begin)
            return fs.cat_file(last, start=start - begin, end=min(whole, start + limit) - begin), start, whole
        return fs.cat_file(path, start=offset, end=size), offset, whole
    return fs.cat_file(path, start=min(offset, size), end=size), offset, size
