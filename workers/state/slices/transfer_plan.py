"""The transfers that bring one node what its ranks need, as values. Imports neither torch nor ray."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regroup.workers.state.slices.box_table import BoxTable
from regroup.workers.state.slices.boxes import Region
from regroup.workers.state.slices.held_state import HeldState, Holder
from regroup.workers.state.slices.tensor_groups import TensorGroups


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of a holder, or of another rank of this node, and their position in the buffer of a rank."""

    source: Region
    rank: int
    """Rank of this node that needs the bytes."""
    target: Region
    """Position in the buffer of that rank. Its bytes have the same order as those of `source`."""


@dataclass(frozen=True, slots=True)
class HolderTransfer(Transfer):
    """Bytes that a holder has, on this node or elsewhere."""

    holder: Holder


@dataclass(frozen=True, slots=True)
class RankTransfer(Transfer):
    """Bytes that were fetched for another rank of this node."""

    source_rank: int


@dataclass(frozen=True)
class HeldPart:
    """A part of every tensor of a group, relative to the first byte of each tensor."""

    source: Region
    rank: int
    target: Region
    tables: tuple[int, ...]
    """Tables that have the part. The tensors of the group take turns."""


@dataclass(frozen=True)
class RankPart:
    """A part of every tensor of a group that another rank of the node gets."""

    source: Region
    rank: int
    target: Region
    source_rank: int


@dataclass
class GroupPlan:
    """The plan of all tensors in the same boxes."""

    names: Sequence[str]
    copied: list[HeldPart] = field(default_factory=list[HeldPart])
    fetched: list[HeldPart] = field(default_factory=list[HeldPart])
    passed_on: list[RankPart] = field(default_factory=list[RankPart])
    missing_bytes: int = 0
    """Bytes of each tensor that the node needs and does not hold."""


class TransferPlan:
    """The transfers of one node. Execute `copies` and `fetches` in any order, then `passes`."""

    def __init__(
        self,
        held: HeldState,
        needed: Mapping[int, BoxTable],
        needed_groups: TensorGroups,
        groups: Sequence[GroupPlan],
        load: Mapping[int, int],
    ) -> None:
        """Initialize the plan.

        Args:
            held: state from which it takes bytes.
            needed: rank → what it needs, with positions in its buffer.
            needed_groups: groups of the tables in `needed`.
            groups: parts by group of tensors.
            load: table → bytes that are fetched from its holder.
        """
        self._held, self._groups = held, groups
        self._ranks = {rank: number for number, rank in enumerate(needed)}
        self._needed = list(needed.values())
        self._needed_groups = needed_groups
        self._load = load

    @property
    def fetched_bytes(self) -> int:
        """Bytes that come from other holders than those of this node."""
        return sum(self._load.values())

    @property
    def minimum_bytes(self) -> int:
        """Bytes that the ranks of the node need, each counted once, and that the node does not hold."""
        return sum(group.missing_bytes * len(group.names) for group in self._groups)

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied within the node."""
        parts = ((group, part) for group in self._groups for part in (*group.copied, *group.passed_on))
        return sum(part.source.size_bytes * len(group.names) for group, part in parts)

    @property
    def bytes_by_holder(self) -> Mapping[Holder, int]:
        """Holder → bytes that are fetched from it."""
        found: dict[Holder, int] = {}
        for table, size_bytes in self._load.items():
            holder = self._held.holders[table]
            found[holder] = found.get(holder, 0) + size_bytes
        return found

    def copies(self) -> Iterator[HolderTransfer]:
        """Return the transfers within this node, from its own holders."""
        for group in self._groups:
            yield from self._held_parts(group.names, group.copied)

    def fetches(self) -> Iterator[HolderTransfer]:
        """Return the transfers from other nodes or from files."""
        for group in self._groups:
            yield from self._held_parts(group.names, group.fetched)

    def passes(self) -> Iterator[RankTransfer]:
        """Return the copies between buffers of this node's ranks, of bytes that several of them need."""
        for group in self._groups:
            starts = _Starts(self._needed_groups, self._needed, group.names)
            for part in group.passed_on:
                sources = starts.of(self._ranks[part.source_rank])
                targets = starts.of(self._ranks[part.rank])
                for source, target in zip(sources, targets, strict=True):
                    yield RankTransfer(
                        part.source.shifted(source), part.rank, part.target.shifted(target), part.source_rank
                    )

    def _held_parts(self, names: Sequence[str], parts: Sequence[HeldPart]) -> Iterator[HolderTransfer]:
        needed = _Starts(self._needed_groups, self._needed, names)
        held = _Starts(self._held.groups, self._held.tables, names)
        for part in parts:
            sources = [held.of(table) for table in part.tables]
            for number, target in enumerate(needed.of(self._ranks[part.rank])):
                turn = number % len(part.tables)
                holder = self._held.holders[part.tables[turn]]
                source = part.source.shifted(sources[turn][number])
                yield HolderTransfer(source, part.rank, part.target.shifted(target), holder)


class _Starts:
    """First bytes of some tensors in tables."""

    def __init__(self, groups: TensorGroups, tables: Sequence[BoxTable], names: Sequence[str]) -> None:
        self._groups, self._tables, self._names = groups, tables, names
        self._found: dict[int, list[int]] = {}

    def of(self, table: int) -> list[int]:
        """Return the first byte of each tensor in a table."""
        if (found := self._found.get(table)) is None:
            starts = self._tables[table].starts
            found = self._found[table] = [starts[row] for row in self._groups.rows(table, self._names)]
        return found
