"""The start of a node's ranks as it travels to the agent. The common parts are encoded once per generation.

The configuration is most of a `Join`, and after a resize every node gets all holders of the state. Encoded for each
rank or node of a large job, they cost seconds while all ranks wait.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.codec import parse, plain
from regroup.workers.contract.messages import ContractError, Join, decode


@dataclass(frozen=True)
class RankStarts:
    """Differences between the ranks of a generation, for those of one node."""

    node_rank: int
    node_name: str
    ranks: tuple[int, ...]
    local_ranks: tuple[int, ...]
    devices: tuple[int, ...]
    dataset: dict[str, Any] = field(default_factory=dict[str, Any])
    """Paths on this node of the prepared data, with their fingerprints."""


def joins_of(common: bytes, starts: RankStarts) -> list[Join]:
    """Return the `Join` of each rank.

    Args:
        common: a `Join` with what all ranks of the generation share, as `messages.encode` writes it.
        starts: the ranks of a node.

    Raises:
        ContractError: `common` is of another version, or another message.
    """
    join = decode(common)
    if not isinstance(join, Join):
        raise ContractError(f"expected a Join, got a {type(join).__name__}")
    here = replace(
        join,
        local_world_size=len(starts.ranks),
        node_rank=starts.node_rank,
        dataset=starts.dataset,
        node_name=starts.node_name,
        node_devices=starts.devices,
    )
    places = zip(starts.ranks, starts.local_ranks, strict=True)
    return [replace(here, rank=rank, local_rank=local_rank) for rank, local_rank in places]


def encode_holders(holders: Sequence[ShardHolder]) -> bytes:
    """Return holders of the state of a generation as compressed JSON; nothing if there are none."""
    return zlib.compress(json.dumps(plain(list(holders)), separators=(",", ":")).encode()) if holders else b""


def decode_holders(data: bytes, node_id: str) -> list[ShardHolder]:
    """Return the holders in the output of `encode_holders`, without the one on this node.

    Raises:
        ContractError: the data is damaged.
    """
    try:
        found: list[ShardHolder] = parse(list[ShardHolder], json.loads(zlib.decompress(data))) if data else []
    except (ValueError, zlib.error) as error:
        raise ContractError(f"the holders of the state cannot be read: {error}") from error
    return [holder for holder in found if holder.address.node_id != node_id]
