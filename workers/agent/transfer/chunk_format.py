"""Binary heads of chunks: a request names regions of a shard, a reply has the checksum of their bytes, which follow.

Both sides check every number before they use it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from regroup.workers.agent.transfer.connection import Connection
from regroup.workers.state.memory.checksum import ROW_BYTES
from regroup.workers.state.slices.boxes import Region

CHUNK_BYTES = 64 * ROW_BYTES
"""Bytes of an ordinary chunk, about 4 MiB. A multiple of the rows of a checksum, so that those of chunks add up."""
MOST_CHUNK_BYTES = 64 << 20
"""Most bytes in one chunk. They bound the memory that a connection needs."""
MOST_REGIONS = 256
"""Most regions in one request. So requests fit the buffers of a connection while chunks fill the other direction."""
_MOST_LEVELS = 16
_REQUEST = struct.Struct("<BxxxI")
"""Kind, number of bytes that follow."""
_REPLY = struct.Struct("<BxxxIQ")
"""Kind, checksum, number of bytes that follow."""
_REGION = struct.Struct("<QQI")
_LEVEL = struct.Struct("<QQ")
_MOST_REQUEST_BYTES = MOST_REGIONS * (_REGION.size + _MOST_LEVELS * _LEVEL.size)


class Kind(IntEnum):
    """Kind of a request or of a reply."""

    CHUNK = 1
    PAUSE = 2
    """This side waits; nothing follows. It proves that the side lives."""
    END = 3
    """Request: no further request follows. Reply: the shard was overwritten."""


@dataclass(frozen=True)
class Reply:
    """Head of a reply."""

    kind: Kind
    crc32: int
    nbytes: int


def send_request(connection: Connection, regions: Sequence[Region]) -> None:
    """Request the bytes of these regions, one after the other, as one chunk."""
    content = b"".join(_packed(region) for region in regions)
    connection.send(_REQUEST.pack(Kind.CHUNK, len(content)) + content)


def send_request_kind(connection: Connection, kind: Kind) -> None:
    """Send a request without regions."""
    connection.send(_REQUEST.pack(kind, 0))


def receive_request(connection: Connection) -> tuple[Kind, list[Region]]:
    """Receive a request.

    Raises:
        ValueError: it is not a valid request.
        OSError: the connection ended.
    """
    kind, count = _REQUEST.unpack(connection.receive(_REQUEST.size))
    if count > _MOST_REQUEST_BYTES:
        raise ValueError(f"a request for a chunk has {count} bytes; at most {_MOST_REQUEST_BYTES} are allowed")
    return Kind(kind), _unpacked(connection.receive(count)) if count else []


def send_reply(connection: Connection, kind: Kind, crc32: int = 0, nbytes: int = 0) -> None:
    """Send the head of a reply."""
    connection.send(_REPLY.pack(kind, crc32, nbytes), is_followed=nbytes > 0)


def receive_reply(connection: Connection) -> Reply:
    """Receive the head of a reply.

    Raises:
        ValueError: it is not a valid head.
        OSError: the connection ended.
    """
    kind, crc32, nbytes = _REPLY.unpack(connection.receive(_REPLY.size))
    return Reply(Kind(kind), crc32, nbytes)


def _packed(region: Region) -> bytes:
    levels = (_LEVEL.pack(*level) for level in zip(region.counts, region.strides_bytes, strict=True))
    return _REGION.pack(region.offset, region.run_bytes, len(region.counts)) + b"".join(levels)


def _unpacked(content: bytes) -> list[Region]:
    found, at = list[Region](), 0
    try:
        while at < len(content):
            start, run_bytes, levels = _REGION.unpack_from(content, at)
            at += _REGION.size
            if levels > _MOST_LEVELS or len(found) == MOST_REGIONS:
                raise ValueError(f"a region has {levels} levels; at most {_MOST_LEVELS} are allowed")
            pairs = [_LEVEL.unpack_from(content, at + number * _LEVEL.size) for number in range(levels)]
            at += levels * _LEVEL.size
            found.append(
                Region(start, run_bytes, tuple(count for count, _ in pairs), tuple(stride for _, stride in pairs))
            )
    except struct.error as error:
        raise ValueError("a request for a chunk ends in the middle of a region") from error
    return found
