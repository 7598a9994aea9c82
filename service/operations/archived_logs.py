"""Rank output in durable storage. Agents write it when they stop (`workers/agent/checkpoints.py: archive_logs`)."""

import asyncio
import posixpath

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.ports.cluster import LogChunk

_SPLIT_BYTES = 8 * 2**20
"""Size from which a stream is archived as its beginning and its end, with a gap between them."""
_SUFFIX = {"stdout": "out", "stderr": "err"}


async def read_archived(storage_uri: str, generation: int, rank: int, stream: str, offset: int, limit: int) -> LogChunk:
    """Read up to `limit` bytes of a rank's archived output from byte `offset`.

    Raises:
        NotFoundError: that output was not archived.
        UnavailableError: durable storage failed.
    """
    uri = posixpath.join(storage_uri, "logs", f"g{generation}-rank{rank}.{_SUFFIX[stream]}")
    try:
        data, start, size = await asyncio.to_thread(_read, uri, offset, limit)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no {stream} of rank {rank} in generation {generation}: no node has it, and {uri} does not exist; "
            "the generation had no such rank, or its node was lost before the job ended"
        ) from error
    except (OSError, ImportError, ValueError) as error:
        raise UnavailableError(f"the server cannot read {uri}: {type(error).__name__}: {error}") from error
    return LogChunk.of(data, start, size, is_ended=True, requested_offset=offset)


def _read(uri: str, offset: int, limit: int) -> tuple[bytes, int, int]:
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
