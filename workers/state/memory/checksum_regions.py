"""Regions of a snapshot with checksums of their own, so that ranks can compare replicas. Imports neither torch nor ray.

The same ranks hold bitwise equal copies of the entries of a group. These entries are adjacent in the data. The checksum
of a snapshot consists of one checksum for each group, so comparing replicas costs no further pass over the memory.
"""

import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_COUNT = struct.Struct("<Q")
_ROW = struct.Struct("<8sQQIHH?")
"""Group, first byte and length in the data, checksum, number of this copy, number of other copies, whether they may
differ."""
MOST = 56
"""Most groups in one table. A mesh of five axes has less than half as many. Further groups are not compared."""
TABLE_BYTES = _COUNT.size + (MOST + 1) * _ROW.size
_MOST_COPIES = 1 << 16
_DIGEST_BITS = 24


class Group(NamedTuple):
    """Ranks with copies of the same tensors, from the view of one of them."""

    id: str
    """16 hexadecimal digits, equal on all ranks of the group."""
    copy: int
    """Number of this rank's copy among the `copies`."""
    copies: int
    may_differ: bool = False
    """True if the copies may differ. Then they are not compared, and a checkpoint keeps each of them if they do."""


@dataclass(frozen=True)
class Region:
    """Consecutive bytes of a snapshot: those of one group, or those that are not compared."""

    start: int
    nbytes: int
    group: Group | None = None
    digest: int = 0
    """Checksum of the bytes, once they are written."""


def order_of(names: Sequence[str], groups: Mapping[str, Group]) -> list[tuple[Group | None, list[int]]]:
    """Return the positions of `names` by group; those without a group come first."""
    compared = sorted({group for group in groups.values() if group.copies <= _MOST_COPIES})[:MOST]
    places: dict[Group | None, list[int]] = {None: [], **{group: [] for group in compared}}
    for number, name in enumerate(names):
        group = groups.get(name)
        places[group if group in places else None].append(number)
    return list(places.items())


def packed(regions: Sequence[Region]) -> bytes:
    """Encode the regions of a snapshot as a table."""
    rows = [_packed(region) for region in regions]
    return (_COUNT.pack(len(rows)) + b"".join(rows)).ljust(TABLE_BYTES, b"\0")


def unpacked(table: bytes | memoryview) -> list[Region] | None:
    """Decode the regions of a table; return None if the bytes are not a table."""
    count: int = _COUNT.unpack_from(table, 0)[0]
    if count > MOST + 1:
        return None
    return [_unpacked(table, _COUNT.size + number * _ROW.size) for number in range(count)]


def whole(index_digest: int, regions: Sequence[Region]) -> int:
    """Return the checksum of a snapshot from the checksums of its index and of its regions."""
    return zlib.crc32(packed(regions), index_digest)


def digests(regions: Sequence[Region]) -> dict[str, int]:
    """Return group → checksum of this rank's copy, for groups whose copies must be equal."""
    return {region.group.id: region.digest for region in regions if region.group and not region.group.may_differ}


def free_digests(regions: Sequence[Region]) -> dict[str, int]:
    """Return group → checksum of this rank's copy, for groups whose copies may differ."""
    return {region.group.id: region.digest for region in regions if region.group and region.group.may_differ}


def skew(regions: Sequence[Region], without: Collection[str] = ()) -> float:
    """Return a number whose sum over all ranks is 0 if the digests of each group are equal, and hardly ever otherwise.

    The first copy of a group counts against all others. The numbers are small integers, so their sum is exact in any
    order.

    Args:
        regions: Regions of this rank.
        without: Groups to ignore.
    """
    total = 0
    for region in regions:
        if region.group is not None and not region.group.may_differ and region.group.id not in without:
            weight = region.group.copies - 1 if region.group.copy == 0 else -1
            total += weight * (region.digest % (1 << _DIGEST_BITS))
    return float(total)


def summed(region: Region, digest: int) -> Region:
    """Return the region with its checksum."""
    return replace(region, digest=digest)


def _packed(region: Region) -> bytes:
    group = region.group
    if group is None:
        return _ROW.pack(b"", region.start, region.nbytes, region.digest, 0, 0, False)
    place = region.start, region.nbytes, region.digest
    return _ROW.pack(bytes.fromhex(group.id), *place, group.copy, group.copies - 1, group.may_differ)


def _unpacked(table: bytes | memoryview, at: int) -> Region:
    name, start, nbytes, digest, copy, others, may_differ = _ROW.unpack_from(table, at)
    group = Group(name.hex(), copy, others + 1, may_differ) if others else None
    return Region(start, nbytes, group, digest)
