"""Replica check: compare tensors that must be bitwise equal on several ranks, and report the outliers."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regroup.workers.contract.error_classes import ReplicasDifferError
from regroup.workers.contract.messages import Join
from regroup.workers.parallel.mesh import Alike, alike_in, holders_of
from regroup.workers.state.memory.checksum_regions import Group
from regroup.workers.state.tensor_names import may_differ, owner_kind, parse_own

_SUMMED_OVER = frozenset({"dp_replicate"})
_TENSORS_NAMED = 5


@dataclass(frozen=True)
class ReplicaComparison:
    """Selection of the parts of a state that are compared with other ranks."""

    rank: int
    alike: Alike
    """Ranks with equal copies of unsharded tensors."""
    axes: frozenset[str] | None
    """Axes of a mesh along which copies are bitwise equal; None: all axes."""
    is_checked: bool = True
    """False if all copies may differ: nothing is compared, and a checkpoint keeps each copy if they differ."""

    def groups(self, tensors: Mapping[str, Tensor]) -> dict[str, Group]:
        """Return the group of each tensor that other ranks have copies of.

        Parameters, optimizer state and each other object are in different groups. Ranks that hold other tensors are in
        another group and are not compared.
        """
        names: dict[tuple[bool, str, tuple[int, ...]], list[str]] = {}
        for name, tensor in tensors.items():
            is_free = not self.is_checked or may_differ(name)
            holders = holders_of(tensor, self.alike, self.rank, None if is_free else self.axes)
            if len(holders) > 1 and parse_own(name) is None:
                names.setdefault((is_free, owner_kind(name), holders), []).append(name)
        found: dict[str, Group] = {}
        for (is_free, kind, holders), own in names.items():
            # The shapes of free copies may differ too.
            shapes = [[name, [] if is_free else list(tensors[name].shape)] for name in own]
            digest = hashlib.sha256(json.dumps([is_free, kind, holders, shapes]).encode()).hexdigest()[:16]
            found |= dict.fromkeys(own, Group(digest, holders.index(self.rank), len(holders), is_free))
        return found


def compared_by(join: Join, device: torch.device) -> ReplicaComparison | None:
    """Return the comparison of a rank; None if it is the only rank.

    Ranks that compute the same result from the same input are bitwise equal only if operations are deterministic. Ranks
    whose gradients are summed by one collective are always equal.
    """
    if join.world_size == 1:
        return None
    is_deterministic = device.type == "cpu" or join.config.is_deterministic
    alike = alike_in(join.layout, join.rank, join.world_size)
    axes = None if is_deterministic else _SUMMED_OVER
    return ReplicaComparison(join.rank, alike, axes, join.config.verify_replicas)


@dataclass(frozen=True)
class ReplicaOutlier:
    """Ranks whose copies differ although they must be equal."""

    ranks: tuple[int, ...]
    """Ranks in the minority; all ranks with a copy if there is no majority."""
    of: tuple[int, ...]
    """All ranks with a copy."""
    keys: tuple[str, ...]
    """Keys of the copies that differ."""

    @property
    def is_certain(self) -> bool:
        """True if a majority of the ranks agrees, so that the others are wrong."""
        return len(self.ranks) < len(self.of)


def find_outliers(held: Mapping[int, Mapping[str, int]]) -> ReplicaOutlier | None:
    """Return the ranks that differ, from rank → name → digest; None if all agree."""
    ranks, of, keys = set[int](), set[int](), list[str]()
    for key in sorted({key for digests in held.values() for key in digests}):
        values = {rank: digests[key] for rank, digests in held.items() if key in digests}
        (value, count), *others = Counter(values.values()).most_common()
        if not others:
            continue
        keys.append(key)
        of |= values.keys()
        ranks |= {rank for rank in values if values[rank] != value} if 2 * count > len(values) else values.keys()
    return ReplicaOutlier(tuple(sorted(ranks)), tuple(sorted(of)), tuple(keys)) if keys else None


def error_of(step: int, outlier: ReplicaOutlier, tensors: Sequence[str]) -> ReplicasDifferError:
    """Return the error for the state after `step`, with the names of the tensors that differ."""
    named = ", ".join(tensors[:_TENSORS_NAMED]) + (", …" if len(tensors) > _TENSORS_NAMED else "")
    count = f"{len(tensors)} tensor{'' if len(tensors) == 1 else 's'}"
    what = f"{count} that must be equal on ranks {_listed(outlier.of)} ({named})"
    if outlier.is_certain:
        who = f"rank{'' if len(outlier.ranks) == 1 else 's'} {_listed(outlier.ranks)}"
        message = f"after step {step}, {who} had values that differ from the other ranks in {what}"
    else:
        message = f"after step {step}, ranks differ in {what}; no majority shows which rank is wrong"
    details = {
        "step": step,
        "outlier_ranks": list(outlier.ranks),
        "of_ranks": list(outlier.of),
        "is_certain": outlier.is_certain,
    }
    return ReplicasDifferError(message, {**details, "tensors": list(tensors)})


def _listed(ranks: Sequence[int]) -> str:
    texts = [str(rank) for rank in ranks]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
