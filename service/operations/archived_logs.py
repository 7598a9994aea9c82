"""Rank output in durable storage. Agents write it when they end (`workers/agent/checkpoints.py: archive_logs`)."""

import asyncio
import posixpath

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.ports.cluster import LogChunk

_LONG = 8 * 2**20
"""Of shorter streams the end is not kept apart."""
_SUFFIX = {"stdout": "out", "stderr": "err"}


async def read_archived(storage_uri: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
    """Up to `limit` bytes of a rank's archived output from byte `offset`.

    Raises:
        NotFoundError: nothing of that output was archived.
        UnavailableError: durable storage refused.
    """
    uri = posixpath.join(storage_uri, "logs", f"g{generation}-rank{rank}.{_SUFFIX[stream]}")
    try:
        data, place, size = await asyncio.to_thread(_read, uri, offset, limit)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no {stream} of rank {rank} in generation {generation} is kept: no node has it and {uri} does not exist; "
            "there was no such rank, or its node was lost before the job ended"
        ) from error
    except (OSError, ImportError, ValueError) as error:
        raise UnavailableError(f"{uri} cannot be read from the server: {type(error).__name__}: {error}") from error
    return LogChunk.of(data, place, size, is_ended=True, asked=offset)


def _read(uri: str, offset: int, limit: int) -> tuple[bytes, int, int]:
    """What there is from `offset` on, or from behind the part that was not kept; its place, and the stream's size."""
    from fsspec.core import url_to_fs  # a server starts without it; it imports the storage's own package, too

    fs, path = url_to_fs(uri)
    size = int(fs.info(path)["size"])
    if offset + limit < size or size < _LONG:
        data = fs.cat_file(path, start=offset, end=min(size, offset + limit)) if offset < size else b""
        return data, offset, size
    for last in fs.glob(f"{path}.from-*"):
        begin = int(last.rpartition("-")[2])
        whole = begin + int(fs.info(last)["size"])
        if offset >= size:
            place = max(offset, begin)
            return fs.cat_file(last, start=place - begin, end=min(whole, place + limit) - begin), place, whole
        return fs.cat_file(path, start=offset, end=size), offset, whole
    return fs.cat_file(path, start=min(offset, size), end=size), offset, size
