"""A saved state as one rank sees it: the rank's own copies take precedence over those that all ranks share."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regroup.workers.parallel.mesh import local
from regroup.workers.state.snapshot import Source
from regroup.workers.state.tensor_names import OwnCopy, parse_own


class RankSource:
    """A source of state for one rank."""

    def __init__(self, source: Source, rank: int, world_size: int, layout_hash: str) -> None:
        """Select the copies of a rank. They count only if the same ranks with the same layout wrote the state."""
        self._source = source
        self._place = rank, world_size
        self._own: dict[str, OwnCopy] = {}
        self._tensors: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        counts = source.is_of_layout(world_size, layout_hash)
        own: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        of_ranks: set[str] = set()
        for name, found in source.tensors().items():
            copy = parse_own(name)
            if copy is None:
                self._tensors[name] = found
                continue
            of_ranks.add(copy.name)
            if counts and copy.rank == rank:
                self._own[copy.name] = copy
                own |= {} if copy.is_part else {copy.name: found}
        self._tensors |= own
        # Ranks of the same layout may have different tensors: one list may be longer than that of another rank.
        self.unreadable = frozenset[str]() if counts else frozenset(of_ranks - self._tensors.keys())
        """Names of which only ranks with another layout have copies."""

    def tensors(self) -> Mapping[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return canonical name → type and global shape, for this rank."""
        return self._tensors

    def extra(self) -> Mapping[str, Any]:
        """Return the small facts."""
        return self._source.extra(*self._place)

    def read(self, targets: Mapping[str, Tensor]) -> None:
        """Fill the local part of every target."""
        chosen: dict[str, Tensor] = {}
        for name, target in targets.items():
            copy = self._own.get(name)
            chosen[name if copy is None else str(copy)] = local(target) if copy is not None and copy.is_part else target
        self._source.read(chosen)
