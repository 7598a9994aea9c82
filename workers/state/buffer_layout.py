"""Positions of the tensors in a snapshot buffer, and the index of a snapshot. Imports neither torch nor ray."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regroup.workers.state.memory import checksum_regions
from regroup.workers.state.memory.checksum_regions import Group, Region

HEADER_BYTES = 4096
_ALIGN = 64
_INDEX_STEP = 64 * 1024


@dataclass(frozen=True)
class Entry:
    """Shard of one tensor: a box of the global tensor, and the position of its bytes."""

    name: str
    """Canonical name, without wrapper prefixes."""
    dtype: str
    """Name of the type in torch, without `torch.`: `float32`."""
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    """First element of the box in the global tensor."""
    shape: tuple[int, ...]
    """Extent of the box."""
    nbytes: int
    start: int = 0
    """Offset in bytes from the start of the data; set by `BufferLayout`."""
    copy: int = 0
    """Number of this copy among the `copies` of the same box on several ranks."""
    copies: int = 1


@dataclass(frozen=True)
class ShardIndex:
    """Position of each tensor, and the small facts that are saved with them."""

    tensors: tuple[Entry, ...]
    extra: Mapping[str, Any]


class BufferLayout:
    """Positions of the shards in every snapshot of this rank. They are the same at every step."""

    def __init__(self, entries: Sequence[Entry], groups: Mapping[str, Group] | None = None) -> None:
        """Lay out entries.

        Args:
            entries: Shards of this rank.
            groups: Name → group of the entries that are compared with other ranks.
        """
        self.groups = dict(groups or {})
        placed, found = list(entries), list[Region]()
        at = 0
        for group, numbers in checksum_regions.order_of([entry.name for entry in entries], self.groups):
            start = at
            for number in numbers:
                placed[number] = replace(entries[number], start=at)
                at = aligned(at + entries[number].nbytes)
            found.append(Region(start, at - start, group))
        self.entries, self.regions = tuple(placed), tuple(found)
        self.data_bytes = at
        self._tensors = json.dumps([asdict(entry) for entry in placed], separators=(",", ":")).encode()

    @property
    def buffer_bytes(self) -> int:
        """Memory of one buffer, as long as the small facts take less than 64 KiB."""
        return data_start(len(self._tensors) + 2 * _INDEX_STEP) + self.data_bytes

    def index(self, extra: Mapping[str, Any]) -> bytes:
        """Return the index with these small facts, padded so that the data keeps its position."""
        facts = json.dumps(dict(extra), separators=(",", ":")).encode()
        index = b'{"tensors":' + self._tensors + b',"extra":' + facts + b"}"
        return index.ljust(-(-len(index) // _INDEX_STEP) * _INDEX_STEP)


def entry_of(item: Mapping[str, Any]) -> Entry:
    """Return one tensor of a parsed index."""
    return Entry(
        item["name"],
        item["dtype"],
        tuple(item["global_shape"]),
        tuple(item["offset"]),
        tuple(item["shape"]),
        item["nbytes"],
        item["start"],
        item["copy"],
        item["copies"],
    )


def data_start(index_bytes: int) -> int:
    """Return the offset of the data in a buffer with an index of this size."""
    return aligned(HEADER_BYTES + index_bytes)


def aligned(value: int) -> int:
    """Return the next offset at which a tensor may start."""
    return -(-value // _ALIGN) * _ALIGN
