"""Replicas: what several ranks hold bitwise alike, who of them is odd if they do not, and how that is said."""

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
from regroup.workers.state.checksum_regions import Group
from regroup.workers.state.tensor_names import is_parameter, may_differ

_SUMMED_OVER = frozenset({"dp_replicate"})
_TENSORS_NAMED = 5


@dataclass(frozen=True)
class ReplicaComparison:
    """Which parts of a state are compared with those of other ranks."""

    rank: int
    alike: Alike
    """Ranks that hold alike what is not sharded."""
    axes: frozenset[str] | None
    """Along which axes of a mesh copies are bitwise alike; None: all."""

    def groups(self, tensors: Mapping[str, Tensor]) -> dict[str, Group]:
        """The group of each tensor that other ranks hold alike, parameters apart from what optimizers remember. Ranks
        that hold other tensors are in another group, and are not compared."""
        names: dict[tuple[bool, tuple[int, ...]], list[str]] = {}
        for name, tensor in tensors.items():
            holders = holders_of(tensor, self.alike, self.rank, self.axes)
            if not may_differ(name) and len(holders) > 1:
                names.setdefault((is_parameter(name), holders), []).append(name)
        found: dict[str, Group] = {}
        for (is_of_model, holders), own in names.items():
            key = json.dumps([is_of_model, holders, [[name, list(tensors[name].shape)] for name in own]])
            digest = hashlib.sha256(key.encode()).hexdigest()[:16]
            found |= dict.fromkeys(own, Group(digest, holders.index(self.rank), len(holders)))
        return found


def compared_by(join: Join, device: torch.device) -> ReplicaComparison | None:
    """What a rank of this job compares; None if it is alone, or is not to.

    Ranks that compute the same from the same input are alike to the last bit only where operations are deterministic;
    those whose gradients are summed by one collective always are.
    """
    if join.world_size == 1 or not join.config.get("verify_replicas"):
        return None
    is_deterministic = device.type == "cpu" or join.config["determinism"] == "strict"
    alike = alike_in(join.layout, join.rank, join.world_size)
    return ReplicaComparison(join.rank, alike, None if is_deterministic else _SUMMED_OVER)


@dataclass(frozen=True)
class ReplicaOutlier:
    """Ranks that differ in what they should hold alike."""

    ranks: tuple[int, ...]
    """The odd ones out; all that hold it if none stand out."""
    of: tuple[int, ...]
    """All that hold it."""
    keys: tuple[str, ...]
    """In what they differ."""

    @property
    def is_certain(self) -> bool:
        """More ranks agree with each other than not: the others are wrong."""
        return len(self.ranks) < len(self.of)


def find_odd(held: Mapping[int, Mapping[str, int]]) -> ReplicaOutlier | None:
    """Who differs in anything, by rank → name → digest; None if nobody does."""
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


def error_of(step: int, odd: ReplicaOutlier, tensors: Sequence[str]) -> ReplicasDifferError:
    """Says so of the state after `step`; `tensors`: in which of them."""
    named = ", ".join(tensors[:_TENSORS_NAMED]) + (", …" if len(tensors) > _TENSORS_NAMED else "")
    what = f"{len(tensors)} tensor{'' if len(tensors) == 1 else 's'} that ranks {_listed(odd.of)} hold alike ({named})"
    if odd.is_certain:
        who = f"rank{'' if len(odd.ranks) == 1 else 's'} {_listed(odd.ranks)}"
        message = f"after step {step}, {who} had other values than the rest of {what}"
    else:
        message = f"after step {step}, which of them is wrong cannot be told, but they differ in {what}"
    details = {"step": step, "odd_ranks": list(odd.ranks), "of_ranks": list(odd.of), "is_certain": odd.is_certain}
    return ReplicasDifferError(message, {**details, "tensors": list(tensors)})


def _listed(ranks: Sequence[int]) -> str:
    texts = [str(rank) for rank in ranks]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
