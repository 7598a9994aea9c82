"""Where the tensors of a snapshot lie in it, and its index. No torch, no ray."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regroup.workers.state import checksum_regions
from regroup.workers.state.checksum_regions import Group, Region

HEADER_BYTES = 4096
_ALIGN = 64
_INDEX_STEP = 64 * 1024


@dataclass(frozen=True)
class Entry:
    """One tensor's shard: a box of the global tensor and where its bytes lie."""

    name: str
    """Canonical name, without wrapper prefixes."""
    dtype: str
    """As torch names it, without `torch.`: `float32`."""
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    """First element of the box in the global tensor."""
    shape: tuple[int, ...]
    """Extent of the box."""
    nbytes: int
    start: int = 0
    """Bytes from the beginning of the data; given by `BufferLayout`."""
    copy: int = 0
    """Several ranks may hold the same box: which of the `copies` this one is."""
    copies: int = 1


@dataclass(frozen=True)
class ShardIndex:
    """Where each tensor lies, and the small facts saved beside them."""

    tensors: tuple[Entry, ...]
    extra: Mapping[str, Any]


class BufferLayout:
    """Where the shards of every set of this rank lie; made once, because it is the same at every step."""

    def __init__(self, entries: Sequence[Entry], groups: Mapping[str, Group] | None = None) -> None:
        """`groups`: of entries that are compared with other ranks', by name."""
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
        """Memory one buffer takes while the small facts beside the tensors stay below 64 KiB."""
        return data_start(len(self._tensors) + 2 * _INDEX_STEP) + self.data_bytes

    def index(self, extra: Mapping[str, Any]) -> bytes:
        """The index with these small facts, filled up with blanks so that the data stays where it is."""
        facts = json.dumps(dict(extra), separators=(",", ":")).encode()
        index = b'{"tensors":' + self._tensors + b',"extra":' + facts + b"}"
        return index.ljust(-(-len(index) // _INDEX_STEP) * _INDEX_STEP)


def entry_of(item: Mapping[str, Any]) -> Entry:
    """One tensor of an index."""
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
    """First byte of the data in a buffer with such an index."""
    return aligned(HEADER_BYTES + index_bytes)


def aligned(value: int) -> int:
    """Where the next tensor may begin."""
    return -(-value // _ALIGN) * _ALIGN
