"""The start of a node's ranks as it travels to the agent. The common part of all ranks is encoded once per generation.

The configuration is most of a `Join`. Encoded for each rank of a large job, it costs seconds while all ranks wait.
"""

from dataclasses import dataclass, field, replace
from typing import Any

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
