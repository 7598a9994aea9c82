"""Boxes of a saved state with their holders: memory of nodes, mirrors, or files of a checkpoint."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regroup.workers.state.slices.box_index import BoxIndex
from regroup.workers.state.slices.box_table import BoxTable, Form, TensorBox
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.slices.tensor_groups import Signature, TensorGroups

Holder = Hashable
"""Place that holds bytes: the shard of a rank in the memory of a node, or a file of a checkpoint."""


@dataclass(frozen=True)
class HeldBox:
    """A part of a tensor that a holder has."""

    name: str
    dtype: str
    item_bytes: int
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    holder: Holder
    start: int
    """First byte in the file of the holder."""


class HeldState:
    """The boxes of a saved state, with their holders."""

    def __init__(self, tables: Iterable[tuple[Holder, BoxTable]]) -> None:
        """Initialize from the tables of all holders. A holder may have several tables."""
        given = list(tables)
        self.holders: Sequence[Holder] = [holder for holder, _ in given]
        """Table number → its holder."""
        self.tables: Sequence[BoxTable] = [table for _, table in given]
        self.groups = TensorGroups(self.tables)
        self._tables_at: dict[Holder, list[int]] = {}
        for number, holder in enumerate(self.holders):
            self._tables_at.setdefault(holder, []).append(number)
        self._indexes: dict[tuple[Signature, Form], BoxIndex] = {}

    @classmethod
    def of(cls, boxes: Iterable[HeldBox]) -> "HeldState":
        """Return the state of single boxes. Many boxes are planned faster from tables."""
        rows: dict[tuple[Holder, int], list[tuple[str, TensorBox, int]]] = {}
        seen: dict[tuple[Holder, str], int] = {}
        for each in boxes:
            copy = seen[each.holder, each.name] = seen.get((each.holder, each.name), -1) + 1
            box = TensorBox(each.dtype, each.item_bytes, each.global_shape, Box(each.offset, each.shape))
            rows.setdefault((each.holder, copy), []).append((each.name, box, each.start))
        return cls((holder, BoxTable.of(some)) for (holder, _), some in rows.items())

    def tensors(self) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Return name → type and global shape."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for columns in self.groups.sets:
            table = self.tables[columns.tables[0]]
            forms = [(box.dtype, box.global_shape) for box in table.boxes]
            found |= {name: forms[number] for name, number in zip(table.names, table.numbers, strict=True)}
        return found

    def index(self, signature: Signature, form: Form) -> BoxIndex:
        """Return the boxes of tensors with this signature and form, of all holders. Owners are numbers of tables."""
        if (found := self._indexes.get((signature, form))) is None:
            places = self.groups.tables_of(signature)
            found = self._indexes[signature, form] = self._index(places, form)
        return found

    def index_at(self, holders: Collection[Holder], signature: Signature, form: Form) -> BoxIndex:
        """Return the boxes of tensors with this signature and form that these holders have."""
        tables = sorted(table for holder in set(holders) for table in self._tables_at.get(holder, ()))
        return self._index(self.groups.tables_among(tables, signature), form)

    def _index(self, places: Iterable[tuple[int, int]], form: Form) -> BoxIndex:
        owners: dict[Box, list[int]] = {}
        for table, number in places:
            box = self.tables[table].boxes[number]
            if box.form == form:
                owners.setdefault(box.box, []).append(table)
        return BoxIndex(owners)
