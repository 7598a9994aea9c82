"""Indexes of shards, as one agent sends them to another: the tensors in each shard, and their first bytes."""

import contextlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.state.buffer_layout import HEADER_BYTES, ShardIndex, data_start, entry_of
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer

_LEVEL = 1
MOST_PACKED_BYTES = 1 << 30
"""Most bytes of an answer."""
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class ShardDescription:
    """Description of a shard that another agent has."""

    rank: int
    world_size: int
    layout_hash: str
    data_start: int
    """Byte of the file at which the data starts. Positions of tensors count from there."""
    data_bytes: int
    index: bytes
    """JSON text with the tensors and the small facts."""

    def parsed(self) -> ShardIndex:
        """Return the tensors and the small facts."""
        data = json.loads(self.index)
        return ShardIndex(tuple(entry_of(item) for item in data["tensors"]), data["extra"])


def describe(fd: int, key: ShardKey) -> ShardDescription:
    """Return the description of a shard. Takes over the descriptor.

    Raises:
        TransferError: the buffer does not have this shard.
    """
    with contextlib.closing(ShardBuffer(fd)) as buffer:
        header = buffer.header()
        index = os.pread(fd, header.index_bytes, HEADER_BYTES).rstrip()
        after = buffer.header()
    expected = BufferState.COMPLETE, key.rank, key.generation, key.step
    if any((each.state, each.rank, each.generation, each.step) != expected for each in (header, after)):
        raise TransferError(f"no shard of {key} here: its buffer has or gets another one, of step {after.step}")
    return ShardDescription(
        header.rank, header.world_size, header.layout_hash, data_start(header.index_bytes), header.data_bytes, index
    )


def pack(shards: Sequence[ShardDescription]) -> bytes:
    """Compress descriptions."""
    heads: list[Mapping[str, Any]] = [{**asdict(shard), "index": len(shard.index)} for shard in shards]
    return zlib.compress(json.dumps(heads).encode() + b"\n" + b"".join(shard.index for shard in shards), _LEVEL)


def unpack(packed: bytes) -> dict[int, ShardDescription]:
    """Return rank → description.

    Raises:
        ValueError: the bytes are not valid descriptions.
    """
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, _MOST_BYTES)
        if unpacker.unconsumed_tail:
            raise ValueError(f"indexes of shards have more than {_MOST_BYTES} bytes")
        at = content.index(b"\n") + 1
        found = dict[int, ShardDescription]()
        for head in json.loads(content[:at]):
            size = int(head.pop("index"))
            found[int(head["rank"])] = ShardDescription(**head, index=content[at : at + size])
            at += size
    except (zlib.error, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"indexes of shards are not valid: {error}") from error
    return found
