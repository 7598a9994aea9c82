"""Indexes of shards, as one agent sends them to another. Ranks of one layout have equal names and positions.

Equal names and positions are sent once, so that the indexes of 1,000 ranks with 2,000 tensors take a few megabytes.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.workers.agent.transfer.shard_store import ShardKey, TransferError
from regroup.workers.state.buffer_layout import HEADER_BYTES, Entry, data_start, entry_of
from regroup.workers.state.shard_buffer import BufferState, ShardBuffer
from regroup.workers.state.slices.box_table import BoxTable, TensorBox, packed, unpacked
from regroup.workers.state.slices.boxes import Box, Region

_COLUMNS = ("names", "numbers", "starts")
_TENSORS, _EXTRA = '{"tensors":', ',"extra":'


MOST_PACKED_BYTES = 1 << 30
"""Most bytes of an answer."""
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class ShardDescription:
    """Description of a shard: its tensors, and where its small facts are."""

    rank: int
    world_size: int
    layout_hash: str
    table: BoxTable
    """Tensors, with positions in the file."""
    facts: Region
    """Position of the small facts in the file, as JSON."""


def describe(fd: int, key: ShardKey) -> ShardDescription:
    """Return the description of a shard. Takes over the descriptor.

    Raises:
        TransferError: the buffer does not have this shard, or its index is damaged.
    """
    with contextlib.closing(ShardBuffer(fd)) as buffer:
        header = buffer.header()
        text = os.pread(fd, header.index_bytes, HEADER_BYTES).decode("ascii", "replace")  # one byte is one character
        after = buffer.header()
    expected = BufferState.COMPLETE, key.rank, key.generation, key.step
    if any((each.state, each.rank, each.generation, each.step) != expected for each in (header, after)):
        raise TransferError(f"no shard of {key} here: its buffer has or gets another one, of step {after.step}")
    try:
        tensors, end = json.JSONDecoder().raw_decode(text, len(_TENSORS))
        table = BoxTable.of(_rows([entry_of(item) for item in tensors], data_start(header.index_bytes)))
    except (ValueError, KeyError, TypeError) as error:
        raise TransferError(f"the index of {key} is damaged: {type(error).__name__}: {error}") from error
    first = end + len(_EXTRA)
    facts = Region(HEADER_BYTES + first, len(text.rstrip()) - 1 - first)
    return ShardDescription(header.rank, header.world_size, header.layout_hash, table, facts)


def pack(shards: Iterable[ShardDescription]) -> bytes:
    """Compress descriptions."""
    columns: dict[str, dict[tuple[Any, ...], int]] = {name: {} for name in _COLUMNS}
    rows: list[dict[str, Any]] = []
    for shard in shards:
        table = shard.table.to_json()
        numbers = {name: columns[name].setdefault(tuple(table[name]), len(columns[name])) for name in _COLUMNS}
        place = {"rank": shard.rank, "world_size": shard.world_size, "layout_hash": shard.layout_hash}
        facts = [shard.facts.offset, shard.facts.run_bytes]
        rows.append({**place, **numbers, "boxes": table["boxes"], "facts": facts})
    return packed({**{name: list(found) for name, found in columns.items()}, "shards": rows})


def unpack(data: bytes) -> dict[int, ShardDescription]:
    """Return rank → description.

    Raises:
        ValueError: the bytes are not valid descriptions.
    """
    found = unpacked(data, _MOST_BYTES)
    try:
        columns = {name: [tuple(column) for column in found[name]] for name in _COLUMNS}
        shards = [_description(columns, shard) for shard in found["shards"]]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"indexes of shards are not valid: {type(error).__name__}: {error}") from error
    return {shard.rank: shard for shard in shards}


def _description(columns: Mapping[str, Sequence[tuple[Any, ...]]], shard: Mapping[str, Any]) -> ShardDescription:
    table = {name: columns[name][shard[name]] for name in _COLUMNS}
    facts = Region(int(shard["facts"][0]), int(shard["facts"][1]))
    place = int(shard["rank"]), int(shard["world_size"]), str(shard["layout_hash"])
    return ShardDescription(*place, BoxTable.from_json({**table, "boxes": shard["boxes"]}), facts)


def _rows(entries: Sequence[Entry], start: int) -> Iterator[tuple[str, TensorBox, int]]:
    for entry in entries:
        box = Box(entry.offset, entry.shape)
        item_bytes = max(1, entry.nbytes // max(1, box.size))
        yield entry.name, TensorBox(entry.dtype, item_bytes, entry.global_shape, box), start + entry.start
