"""Groups of tensors in the same boxes of the same tables, so that one plan serves all of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regroup.workers.state.slices.box_table import BoxTable

Signature = tuple[tuple[int, int], ...]
"""For each column set that has the tensor: its number, and the position of the box in each table of the set."""


@dataclass(frozen=True)
class ColumnSet:
    """Tables with the same names and, for each name, the same position of its box."""

    names: tuple[str, ...]
    tables: tuple[int, ...]
    """Numbers of the tables."""

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Name → its row in the tables."""
        return {name: row for row, name in enumerate(self.names)}


class TensorGroups:
    """Tensors of some tables, by signature. A table holds each name at most once."""

    def __init__(self, tables: Sequence[BoxTable]) -> None:
        columns: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = {}
        for number, table in enumerate(tables):
            columns.setdefault((table.names, table.numbers), []).append(number)
        self.sets = [ColumnSet(names, tuple(numbers)) for (names, _), numbers in columns.items()]
        self.signatures: Mapping[str, Signature] = _signatures(list(columns))
        """Name → signature."""

    def tables_of(self, signature: Signature) -> list[tuple[int, int]]:
        """Return number of the table and position of the box in it, for all tables that have tensors of this form."""
        return [(table, box) for number, box in signature for table in self.sets[number].tables]

    def tables_among(self, tables: Iterable[int], signature: Signature) -> list[tuple[int, int]]:
        """Return the same as `tables_of`, but only for some tables."""
        box_of = dict(signature)
        sets = ((table, self._set_of[table]) for table in tables)
        return [(table, box_of[number]) for table, number in sets if number in box_of]

    def rows(self, table: int, names: Sequence[str]) -> list[int]:
        """Return the rows of tensors in a table."""
        row_of = self.sets[self._set_of[table]].rows
        return [row_of[name] for name in names]

    @cached_property
    def _set_of(self) -> dict[int, int]:
        return {table: number for number, columns in enumerate(self.sets) for table in columns.tables}


def _signatures(columns: Sequence[tuple[tuple[str, ...], tuple[int, ...]]]) -> Mapping[str, Signature]:
    if len(columns) == 1:  # the common case, and most of the work of a plan: equal signatures are one object
        names, boxes = columns[0]
        shared: dict[int, Signature] = {box: ((0, box),) for box in set(boxes)}
        return dict(zip(names, map(shared.__getitem__, boxes), strict=True))
    found: dict[str, list[tuple[int, int]]] = {}
    for number, (names, boxes) in enumerate(columns):
        for name, box in zip(names, boxes, strict=True):
            found.setdefault(name, []).append((number, box))
    return {name: tuple(places) for name, places in found.items()}
