"""What of a snapshot's data is summed by itself, so that ranks can compare what they hold alike. No torch, no ray.

The entries of a group are held bitwise alike by the same ranks. They lie side by side in the data, so the checksum that
a snapshot has anyway is made of one checksum for each group, and comparing replicas costs no further look at memory.
"""

import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_COUNT = struct.Struct("<Q")
_ROW = struct.Struct("<8sQQIHH")
"""group, first byte and length in the data, checksum, which copy this is and of how many less one."""
MOST = 56
"""Groups in one table; a mesh of five axes has not half as many. What is beyond that is not compared."""
TABLE_BYTES = _COUNT.size + (MOST + 1) * _ROW.size
_MOST_COPIES = 1 << 16
_DIGEST_BITS = 24


class Group(NamedTuple):
    """Ranks that hold something bitwise alike, as one of them sees it."""

    id: str
    """16 hexadecimal digits; the same on all of them."""
    copy: int
    """Which of the `copies` this rank's is."""
    copies: int


@dataclass(frozen=True)
class Region:
    """Consecutive bytes of a snapshot's data: a group's, or what is not compared."""

    start: int
    nbytes: int
    group: Group | None = None
    digest: int = 0
    """Checksum of the bytes, once they are there."""


def order_of(names: Sequence[str], groups: Mapping[str, Group]) -> list[tuple[Group | None, list[int]]]:
    """Positions of `names` by group, those without one first."""
    known = sorted({group for group in groups.values() if group.copies <= _MOST_COPIES})[:MOST]
    places: dict[Group | None, list[int]] = {None: [], **{group: [] for group in known}}
    for number, name in enumerate(names):
        group = groups.get(name)
        places[group if group in places else None].append(number)
    return list(places.items())


def packed(regions: Sequence[Region]) -> bytes:
    """The table of a snapshot's regions."""
    rows = [_packed(region) for region in regions]
    return (_COUNT.pack(len(rows)) + b"".join(rows)).ljust(TABLE_BYTES, b"\0")


def unpacked(table: bytes | memoryview) -> list[Region] | None:
    """The regions of a table; None if it is none."""
    count: int = _COUNT.unpack_from(table, 0)[0]
    if count > MOST + 1:
        return None
    return [_unpacked(table, _COUNT.size + number * _ROW.size) for number in range(count)]


def whole(index_digest: int, regions: Sequence[Region]) -> int:
    """The checksum of a snapshot, from those of its index and of its regions."""
    return zlib.crc32(packed(regions), index_digest)


def digests(regions: Sequence[Region]) -> dict[str, int]:
    """Group → checksum of what this rank holds of it."""
    return {region.group.id: region.digest for region in regions if region.group is not None}


def skew(regions: Sequence[Region], without: Collection[str] = ()) -> float:
    """A number whose sum over all ranks is 0 if every group's digests are equal, and hardly ever otherwise. Groups in
    `without` do not count.

    The first of a group's copies counts against all others. Integers, and small: their sum is exact in any order.
    """
    total = 0
    for region in regions:
        if region.group is not None and region.group.id not in without:
            weight = region.group.copies - 1 if region.group.copy == 0 else -1
            total += weight * (region.digest % (1 << _DIGEST_BITS))
    return float(total)


def summed(region: Region, digest: int) -> Region:
    """The region with its checksum."""
    return replace(region, digest=digest)


def _packed(region: Region) -> bytes:
    group = region.group
    name, copy, copies = (b"", 0, 1) if group is None else (bytes.fromhex(group.id), group.copy, group.copies)
    return _ROW.pack(name, region.start, region.nbytes, region.digest, copy, copies - 1)


def _unpacked(table: bytes | memoryview, at: int) -> Region:
    name, start, nbytes, digest, copy, others = _ROW.unpack_from(table, at)
    group = Group(name.hex(), copy, others + 1) if others else None
    return Region(start, nbytes, group, digest)
