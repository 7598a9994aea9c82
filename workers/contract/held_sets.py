"""Sets of training state in a node's memory, as an agent describes them to its supervisor.

A supervisor reads the descriptions of all nodes while all ranks wait. Therefore a set is one record per node, with a
column of ranks, instead of one record per rank.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HeldShard:
    """A complete shard of training state held in a node's memory."""

    rank: int
    world_size: int
    generation: int
    step: int
    layout_hash: str
    digests: dict[str, int] = field(default_factory=dict[str, int])
    """Checksum of each part that other ranks hold too, by a name that is the same for all of them."""
    is_verified: bool = False
    """The data was read and is intact, and no rank could write to it since then."""


@dataclass(frozen=True)
class HeldSet:
    """The complete shards of one set in a node's memory."""

    world_size: int
    generation: int
    step: int
    layout_hash: str
    ranks: tuple[int, ...]
    """Ranks that wrote these shards."""
    digests: tuple[dict[str, int], ...] = ()
    """Checksums of the parts that other ranks hold too. Shards with equal checksums have one entry together."""
    is_verified: bool = False
    """All of these shards were verified."""


def sets_of(shards: Iterable[HeldShard]) -> list[HeldSet]:
    """Return the sets to which shards belong, in the order of their first shards."""
    found: dict[tuple[int, int, int, str], list[HeldShard]] = {}
    for shard in shards:
        key = shard.world_size, shard.generation, shard.step, shard.layout_hash
        found.setdefault(key, []).append(shard)
    return [
        HeldSet(
            *key,
            tuple(dict.fromkeys(shard.rank for shard in held)),
            _different(shard.digests for shard in held),
            all(shard.is_verified for shard in held),
        )
        for key, held in found.items()
    ]


def _different(digests: Iterable[Mapping[str, int]]) -> tuple[dict[str, int], ...]:
    found: dict[frozenset[tuple[str, int]], dict[str, int]] = {}
    for each in digests:
        if each:
            found.setdefault(frozenset(each.items()), dict(each))
    return tuple(found.values())
