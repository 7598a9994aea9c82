"""The places of all ranks of a generation. A map of 16,384 ranks takes 0.2 MB and is searched by node.

A tuple of `RankPlace` repeats the names of a node for each of its ranks, and a search for the ranks of one node reads
all of them: with 2,048 nodes, that is 33 million reads to form a generation.
"""

import base64
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from regroup.service.domain.job_events import RankPlace


@dataclass(frozen=True)
class NodeOfRanks:
    """A node on which ranks run."""

    node_id: str
    node_name: str
    address: str


@dataclass(frozen=True, slots=True)
class RanksOfNode:
    """The ranks on one node, as columns."""

    ranks: tuple[int, ...]
    local_ranks: tuple[int, ...]
    devices: tuple[int, ...]


class RankMap(Sequence[RankPlace]):
    """Rank → its place, in the order of ranks. Equal maps have equal places."""

    __slots__ = ("_columns", "_json", "_nodes", "_ranks_of")

    def __init__(self, nodes: Sequence[NodeOfRanks], columns: Mapping[str, Sequence[int]]) -> None:
        """Initialize a map.

        Args:
            nodes: nodes, in the order of their first rank.
            columns: for each place its `rank`, the index of its `node`, its `local_rank` and its `device`.

        Raises:
            ValueError: the columns have different lengths, or a node does not exist.
        """
        self._nodes = tuple(nodes)
        self._columns = {name: array("q", columns[name]) for name in _COLUMNS}
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) != 1:
            raise ValueError(f"the columns of a rank map have different lengths: {sorted(lengths)}")
        if any(not 0 <= index < len(self._nodes) for index in self._columns["node"]):
            raise ValueError(f"a rank map of {len(self._nodes)} nodes names another node")
        self._ranks_of: dict[str, list[int]] | None = None
        self._json: dict[str, Any] | None = None

    @classmethod
    def of(cls, places: Iterable[RankPlace]) -> "RankMap":
        """Return the map of these places, in their order."""
        if isinstance(places, RankMap):
            return places
        indexes: dict[NodeOfRanks, int] = {}
        columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
        for place in places:
            node = NodeOfRanks(place.node_id, place.node_name, place.address)
            values = (place.rank, indexes.setdefault(node, len(indexes)), place.local_rank, place.device)
            for name, value in zip(_COLUMNS, values, strict=True):
                columns[name].append(value)
        return cls(tuple(indexes), columns)

    @property
    def nodes(self) -> Sequence[NodeOfRanks]:
        """The nodes, in the order of their first rank."""
        return self._nodes

    @property
    def numbers(self) -> Sequence[int]:
        """The ranks, in the order of their places."""
        return self._columns["rank"]

    def node_ids(self) -> dict[int, str]:
        """Return rank → id of its node."""
        ids = [node.node_id for node in self._nodes]
        return {rank: ids[node] for rank, node in zip(self._columns["rank"], self._columns["node"], strict=True)}

    def on(self, node_id: str) -> tuple[RankPlace, ...]:
        """Return the places on one node. The first call reads the whole map, later ones only that node."""
        return tuple(self._place(position) for position in self._positions_on(node_id))

    def ranks_on(self, node_id: str) -> RanksOfNode:
        """Return the ranks on one node. It costs less than their places."""
        positions, columns = self._positions_on(node_id), self._columns
        names = ("rank", "local_rank", "device")
        return RanksOfNode(*(tuple(map(columns[name].__getitem__, positions)) for name in names))

    def to_json(self) -> dict[str, Any]:
        """Return compact plain data: each node once, nodes and columns compressed. Only the first call compresses."""
        if self._json is None:
            nodes = [[node.node_id, node.node_name, node.address] for node in self._nodes]
            self._json = {
                "nodes": _packed(json.dumps(nodes, separators=(",", ":")).encode()),
                "count": len(self),
                "columns": _packed(b"".join(_littled(self._columns[name]) for name in _COLUMNS)),
            }
        return dict(self._json)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RankMap":
        """Parse the output of `to_json`.

        Raises:
            ValueError: the data is damaged.
        """
        count, size_bytes = int(data["count"]), int(data["count"]) * _ITEM_BYTES
        try:
            raw, nodes = _unpacked(data["columns"]), json.loads(_unpacked(data["nodes"]))
        except zlib.error as error:
            raise ValueError(f"the columns of a rank map are damaged: {error}") from error
        if count < 0 or len(raw) != size_bytes * len(_COLUMNS):
            raise ValueError(f"a rank map of {count} ranks has {len(raw)} bytes in its columns")
        pieces = [raw[start : start + size_bytes] for start in range(0, len(raw), size_bytes)] if count else []
        columns = {name: _unlittled(piece) for name, piece in zip(_COLUMNS, pieces, strict=bool(count))}
        return cls([NodeOfRanks(*map(str, node)) for node in nodes], columns or dict.fromkeys(_COLUMNS, ()))

    @overload
    def __getitem__(self, index: int) -> RankPlace: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RankPlace]: ...
    def __getitem__(self, index: int | slice) -> RankPlace | Sequence[RankPlace]:
        if isinstance(index, slice):
            return tuple(self._place(position) for position in range(*index.indices(len(self))))
        return self._place(range(len(self))[index])

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def __iter__(self) -> Iterator[RankPlace]:
        return map(self._place, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankMap):
            return NotImplemented
        return (self._nodes, self._columns) == (other._nodes, other._columns)

    def __hash__(self) -> int:
        return hash((self._nodes, len(self)))

    def __repr__(self) -> str:
        return f"RankMap({len(self)} ranks on {len(self._nodes)} nodes)"

    def _positions_on(self, node_id: str) -> Sequence[int]:
        if self._ranks_of is None:
            found: dict[str, list[int]] = {}
            for position, index in enumerate(self._columns["node"]):
                found.setdefault(self._nodes[index].node_id, []).append(position)
            self._ranks_of = found
        return self._ranks_of.get(node_id, ())

    def _place(self, position: int) -> RankPlace:
        node = self._nodes[self._columns["node"][position]]
        rank, local_rank, device = (self._columns[name][position] for name in ("rank", "local_rank", "device"))
        return RankPlace(rank, node.node_id, node.node_name, node.address, local_rank, device)


_COLUMNS = ("rank", "node", "local_rank", "device")
_ITEM_BYTES = array("q").itemsize
_IS_LITTLE = array("H", [1]).tobytes()[0] == 1


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


def _littled(column: "array[int]") -> bytes:
    if _IS_LITTLE:
        return column.tobytes()
    swapped = array("q", column)
    swapped.byteswap()
    return swapped.tobytes()


def _unlittled(data: bytes) -> "array[int]":
    column = array("q")
    column.frombytes(data)
    if not _IS_LITTLE:
        column.byteswap()
    return column
