"""Choose the state from which a new generation starts, and the recovery action. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regroup.service.domain.job_events import RecoveryAction
from regroup.service.domain.states import Reason
from regroup.workers.contract.held_sets import HeldSet


@dataclass(frozen=True, slots=True)
class NodeSet:
    """The shards of one set in the memory of one node."""

    node_id: str
    held: HeldSet

    @property
    def name(self) -> tuple[int, int]:
        """Generation and step of the set."""
        return self.held.generation, self.held.step


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

    @property
    def all_holders(self) -> Mapping[str, Sequence[int]]:
        """Node → the ranks in `fetch` whose shard it holds."""
        return _by_node(self.fetch)

    def holders_of_lost(self, node_of_rank: Mapping[int, str]) -> Mapping[str, Mapping[str, Sequence[int]]]:
        """Return node → the nodes that hold the shards of its ranks, with those ranks, if no shard is on it.

        Args:
            node_of_rank: rank → node on which it will run.
        """
        needed: dict[str, list[tuple[int, str]]] = {}
        for rank, holder in self.fetch:
            needed.setdefault(node_of_rank[rank], []).append((rank, holder))
        return {node: _by_node(held) for node, held in needed.items()}


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
    sets: Sequence[NodeSet],
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
    wrong = set(find_diverged_sets(sets))

    def counts(generation: int, step: int) -> bool:
        return all(start >= step for later, start in starts.items() if later > generation)

    parts: dict[tuple[int, int, int, str], list[NodeSet]] = {}
    for each in sets:
        if each.name not in wrong:
            held = each.held
            parts.setdefault((held.step, held.generation, held.world_size, held.layout_hash), []).append(each)
    whole = {
        (step, generation): (here, world if world != len(node_of_rank) or generation in others else 0)
        for (step, generation, world, _), here in parts.items()
        if counts(generation, step) and _is_whole(here, world)
    }
    disk = [(item.step, item.generation, item.uri) for item in saved if counts(item.generation, item.step)]
    best_disk = max(disk, default=None)
    if whole and (best_disk is None or max(whole)[0] >= best_disk[0]):
        step, generation = max(whole)
        here, world_size = whole[step, generation]
        if world_size:
            held = _holders_of(range(world_size), here)
            everywhere = tuple((rank, node) for rank, nodes in sorted(held.items()) for node in nodes)
            return RestoreSource(RestoreKind.MEMORY, step, generation, fetch=everywhere, world_size=world_size)
        held = _holders_of(_ranks_elsewhere(here, node_of_rank), here)
        fetch = ((rank, node) for rank, nodes in sorted(held.items()) for node in reversed(nodes))
        return RestoreSource(RestoreKind.MEMORY, step, generation, fetch=tuple(fetch))
    if best_disk is not None:
        return RestoreSource(RestoreKind.CHECKPOINT, best_disk[0], best_disk[1], best_disk[2])
    return RestoreSource(RestoreKind.NONE)


def find_diverged_sets(sets: Sequence[NodeSet]) -> list[tuple[int, int]]:
    """Return generation and step of the sets with different values of replicated state."""
    digests: dict[tuple[int, int], list[Mapping[str, int]]] = {}
    for each in sets:
        digests.setdefault(each.name, []).extend(each.held.digests)
    return sorted(name for name, found in digests.items() if not replicas_agree(found))


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


def _is_whole(parts: Sequence[NodeSet], world_size: int) -> bool:
    """Return whether the shard of every rank is on some node."""
    ranks = set[int]().union(*(part.held.ranks for part in parts))
    return world_size > 0 and ranks.issuperset(range(world_size))


def _ranks_elsewhere(parts: Sequence[NodeSet], node_of_rank: Mapping[int, str]) -> Collection[int]:
    """Return the ranks whose shard is not on their own node."""
    elsewhere = dict(node_of_rank)
    for part in parts:
        for rank in part.held.ranks:
            if elsewhere.get(rank) == part.node_id:
                del elsewhere[rank]
    return elsewhere.keys()


def _holders_of(ranks: Collection[int], parts: Sequence[NodeSet]) -> dict[int, list[str]]:
    """Return rank → nodes that hold its shard."""
    held: dict[int, list[str]] = {}
    for part in parts if ranks else ():
        for rank in part.held.ranks:
            if rank in ranks:
                held.setdefault(rank, []).append(part.node_id)
    return held
