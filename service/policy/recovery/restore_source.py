"""Choose the state from which a new generation starts, and the recovery action. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from regroup.service.domain.job_events import RecoveryAction
from regroup.service.domain.states import Reason


@dataclass(frozen=True)
class Shard:
    """A verified shard in a node's memory."""

    rank: int
    world_size: int
    generation: int
    step: int
    layout_hash: str
    node_id: str
    shared_checksums: Mapping[str, int] = field(default_factory=dict[str, int])
    """Name of each replicated part → its checksum."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint in durable storage."""

    uri: str
    generation: int
    step: int


class RestoreKind(StrEnum):
    """The tier that holds the state of a restore."""

    MEMORY = "memory"
    CHECKPOINT = "checkpoint"
    NONE = "none"
    """There is no state: training starts from the beginning."""


@dataclass(frozen=True)
class RestoreSource:
    """Source of the next generation's state."""

    kind: RestoreKind
    step: int = 0
    generation: int = 0
    uri: str = ""
    fetch: tuple[tuple[int, str], ...] = ()
    """For `memory`: ranks whose shard is on another node than the rank, with each node that holds it. With a
    `world_size`: all ranks that wrote the set, with the nodes that hold their shards."""
    world_size: int = 0
    """For `memory`: number of ranks that wrote the set if the new ranks are different or split differently; otherwise
    0."""

    @property
    def recovery_action(self) -> RecoveryAction:
        """The recovery action that this source implies."""
        return RecoveryAction.RESPAWN if self.kind is RestoreKind.MEMORY else RecoveryAction.DISK

    def remote_holders(self, nodes: Sequence[str]) -> set[str]:
        """Return the nodes from which ranks on `nodes` may fetch."""
        held = {node for _, node in self.fetch}
        return held - set(nodes) if len(nodes) == 1 else held

    def holders(self, ranks_on: Mapping[str, Sequence[int]]) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return node → the nodes that hold what its ranks may need, each with the ranks that wrote it.

        Other ranks need parts of all shards. The same ranks need their own shards, if these are elsewhere.

        Args:
            ranks_on: node → ranks that will run there.
        """
        if self.world_size:
            everything = _by_node(self.fetch)
            return dict.fromkeys(ranks_on, everything)
        lost: dict[int, list[str]] = {}
        for rank, node in self.fetch:
            lost.setdefault(rank, []).append(node)
        return {
            node: _by_node([(rank, holder) for rank in ranks for holder in lost.get(rank, ())])
            for node, ranks in ranks_on.items()
        }


def _by_node(held: Iterable[tuple[int, str]]) -> dict[str, tuple[int, ...]]:
    ranks: dict[str, list[int]] = {}
    for rank, node in held:
        ranks.setdefault(node, []).append(rank)
    return {node: tuple(some) for node, some in ranks.items()}


def choose_recovery_action(
    reason: Reason, source: RestoreSource, world_size: int, *, is_elsewhere: bool = False
) -> RecoveryAction:
    """Choose how a job continues with `world_size` ranks; `is_elsewhere`: on other nodes."""
    if source.kind is RestoreKind.MEMORY and source.world_size:
        is_smaller = reason is not Reason.RESIZED and world_size < source.world_size
        return RecoveryAction.SHRINK if is_smaller else RecoveryAction.RESIZE
    if source.kind is RestoreKind.MEMORY and is_elsewhere:
        return RecoveryAction.SPARE
    return source.recovery_action


def choose_restore_source(
    shards: Sequence[Shard],
    saved: Sequence[SavedCheckpoint],
    starts: Mapping[int, int],
    node_of_rank: Mapping[int, str],
    others: Collection[int] = (),
) -> RestoreSource:
    """Return the newest usable state: memory before disk at the same step, `none` if there is no state.

    A set in memory is usable if the shard of every rank of one (generation, step, layout) is on some node. If the new
    ranks have the same number and split, each needs only its own shard; otherwise parts of several shards. State of
    generation g at step s counts only if every later generation started at step s or later; otherwise a later
    generation has replaced it. A set with different values of replicated state does not count.

    Args:
        starts: generation → start step.
        node_of_rank: rank of the new generation → its node.
        others: generations with another number or split of ranks.
    """
    wrong = set(find_diverged_sets(shards))

    def counts(generation: int, step: int) -> bool:
        return all(start >= step for later, start in starts.items() if later > generation)

    sets: dict[tuple[int, int, int, str], dict[int, list[str]]] = {}
    for shard in shards:
        if (shard.generation, shard.step) not in wrong and shard.rank < shard.world_size:
            key = (shard.step, shard.generation, shard.world_size, shard.layout_hash)
            sets.setdefault(key, {}).setdefault(shard.rank, []).append(shard.node_id)
    whole = {
        (step, generation): (held, world if world != len(node_of_rank) or generation in others else 0)
        for (step, generation, world, _), held in sets.items()
        if len(held) == world and counts(generation, step)
    }
    disk = [(item.step, item.generation, item.uri) for item in saved if counts(item.generation, item.step)]
    best_disk = max(disk, default=None)
    if whole and (best_disk is None or max(whole)[0] >= best_disk[0]):
        step, generation = max(whole)
        held, world_size = whole[step, generation]
        if world_size:
            everywhere = tuple((rank, node) for rank, nodes in sorted(held.items()) for node in nodes)
            return RestoreSource(RestoreKind.MEMORY, step, generation, fetch=everywhere, world_size=world_size)
        lost = ((rank, nodes) for rank, nodes in sorted(held.items()) if node_of_rank[rank] not in nodes)
        fetch = ((rank, node) for rank, nodes in lost for node in reversed(nodes))
        return RestoreSource(RestoreKind.MEMORY, step, generation, fetch=tuple(fetch))
    if best_disk is not None:
        return RestoreSource(RestoreKind.CHECKPOINT, best_disk[0], best_disk[1], best_disk[2])
    return RestoreSource(RestoreKind.NONE)


def find_diverged_sets(shards: Sequence[Shard]) -> list[tuple[int, int]]:
    """Return generation and step of the sets with different values of replicated state."""
    sets: dict[tuple[int, int], list[Mapping[str, int]]] = {}
    for shard in shards:
        sets.setdefault((shard.generation, shard.step), []).append(shard.shared_checksums)
    return sorted(key for key, held in sets.items() if not replicas_agree(held))


def find_differing(held: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the names whose checksums differ between ranks."""
    values: dict[str, set[int]] = {}
    for each in held:
        for name, digest in each.items():
            values.setdefault(name, set()).add(digest)
    return tuple(sorted(name for name, found in values.items() if len(found) > 1))


def replicas_agree(held: Sequence[Mapping[str, int]]) -> bool:
    """Return True if all ranks have the same checksums of replicated state."""
    checksums: dict[str, int] = {}
    last: Mapping[str, int] = {}
    for each in held:
        if each == last:  # nearly all are equal, and are compared as a whole
            continue
        if any(checksums.setdefault(name, digest) != digest for name, digest in each.items()):
            return False
        last = each
    return True
