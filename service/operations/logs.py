"""Output of a rank over all generations, as one stream: from its node, or from durable storage.

Agents write it to durable storage when they stop (`workers/agent/checkpoints.py: archive_logs`).
"""

import asyncio
import posixpath
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.ports.cluster import Cluster, LogChunk
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store
from regroup.workers.contract.storage_uri import checked_uri

_CHUNK_BYTES = 64 * 1024
_SPLIT_BYTES = 8 * 2**20
"""Size from which a stream is archived as its beginning and its end, with a gap between them."""
_SUFFIX = {"stdout": "out", "stderr": "err"}


@dataclass(frozen=True, order=True)
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


class LogSelection(Protocol):
    """The output to read."""

    @property
    def rank(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def only(self) -> int | None: ...


@dataclass(frozen=True)
class LogStep:
    """The result of one read of an output that may still grow."""

    piece: LogPiece | None
    next: LogPosition
    """Position of the next read."""
    is_idle: bool = False
    """True if there is no more output yet."""
    is_ended: bool = False
    """True if there will be no more output."""


async def read_step(cluster: Cluster, job: JobRow, source: LogSelection, position: LogPosition) -> LogStep:
    """Read the next piece of an output, also beyond the end of a generation.

    Args:
        job: current row.
    """
    piece, after, has_ended = None, position, False
    try:
        chunk = await read_chunk(cluster, job, position, source.rank, source.stream, _CHUNK_BYTES)
    except NotFoundError:
        # The rank has not started, or the generation had no such rank, or the node is lost.
        has_ended = position.generation < job.generation
    except UnavailableError:
        pass  # the node may answer later
    else:
        if chunk.next_offset > position.offset:
            after = LogPosition(position.generation, chunk.next_offset)
            piece = LogPiece(chunk.data, position, after)
        has_ended = chunk.complete
    if piece is not None and not has_ended:
        return LogStep(piece, after)
    if has_ended and position.generation < job.generation and source.only is None:
        return LogStep(piece, LogPosition(position.generation + 1, 0))
    is_over = job.state.is_terminal or (has_ended and source.only is not None)
    return LogStep(piece, after, is_idle=not is_over, is_ended=is_over)


async def read_log(
    store: Store, cluster: Cluster, job: JobRow, rank: int, stream: str, position: LogPosition
) -> AsyncGenerator[LogPiece]:
    """Yield the output of one generation that exists now, from `position`.

    Raises:
        UnavailableError: the node or the storage does not answer.
    """
    while True:
        try:
            chunk = await read_chunk(cluster, await store.job(job.id), position, rank, stream, _CHUNK_BYTES)
        except NotFoundError:
            return
        if chunk.next_offset <= position.offset:
            return
        after = LogPosition(position.generation, chunk.next_offset)
        yield LogPiece(chunk.data, position, after)
        position = after
        if chunk.complete:
            return


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

    fs, path = url_to_fs(checked_uri(uri))
    size = int(fs.info(path)["size"])
    lasts = fs.glob(f"{path}.from-*") if size >= _SPLIT_BYTES else []
    for last in lasts:
        begin = int(last.rpartition("-")[2])
        whole = begin + int(fs.info(last)["size"])
        if offset >= whole:
            return b"", offset, whole
        if offset + limit < size:
            return fs.cat_file(path, start=offset, end=offset + limit), offset, whole
        if offset >= size:
            start = max(offset, begin)
            return fs.cat_file(last, start=start - begin, end=min(whole, start + limit) - begin), start, whole
        return fs.cat_file(path, start=offset, end=size), offset, whole
    return fs.cat_file(path, start=offset, end=min(size, offset + limit)) if offset < size else b"", offset, size
