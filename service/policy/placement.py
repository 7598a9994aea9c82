"""Which nodes a job gets: all it needs or none; as few nodes as can be, then the tightest fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from regroup.service.policy.topology import Node


@dataclass(frozen=True)
class Demand:
    """What a job asks for at one layout."""

    ranks: int
    segment: int
    """Ranks of one TP group, which never leaves its node."""
    device: str
    """`cpu` or `cuda`."""
    cpus: int
    """Cores of each rank."""
    memory_bytes: int = 0
    """Host memory of each rank; 0 asks for none."""

    def __str__(self) -> str:
        parts = [f"{self.cpus} CPU" + ("s" if self.cpus > 1 else "")]
        if self.device == "cuda":
            parts.insert(0, "1 CUDA device")
        if self.memory_bytes:
            parts.append(f"{self.memory_bytes / 2**30:.1f} GiB")
        whole = f", in whole groups of {self.segment} per node" if self.segment > 1 else ""
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} of {' and '.join(parts)} each{whole}"


@dataclass(frozen=True)
class Seat:
    """A number of ranks on one node."""

    node: Node
    ranks: int


@dataclass(frozen=True)
class Placement:
    """Every rank has a device. Ranks are numbered through the seats in order."""

    seats: tuple[Seat, ...]


class Shortage(StrEnum):
    """Why a job has no nodes; reason of its condition `Placeable`."""

    NO_NODES = "no_nodes"
    """No node of the cluster takes ranks."""
    TOO_LARGE = "too_large"
    """It would not fit even if nothing else ran. It waits for nodes to join and blocks nobody."""
    BUSY = "busy"
    """It fits once others have ended."""
    BEHIND = "behind"
    """A job that came earlier has the next turn."""
    NODES_CLOSED = "nodes_closed"
    """It would fit if no node were cordoned or quarantined. It waits for them to open and blocks nobody."""


@dataclass(frozen=True)
class NodeRoom:
    """What one node could give: a line of the table that `why` shows."""

    name: str
    free_ranks: int
    all_ranks: int
    limit: str
    """What there is too little of, e.g. `CPU: 1 of 4 free`."""


@dataclass(frozen=True)
class Unplaceable:
    """Why not, in words, and node by node."""

    reason: Shortage
    message: str
    nodes: tuple[NodeRoom, ...] = ()


def place(demand: Demand, nodes: Iterable[Node]) -> Placement | Unplaceable:
    """Nodes for all ranks, or what is missing."""
    taking = _taking(nodes)
    usable = [node for node in taking if not node.closed]
    rooms, without = tuple(_room(demand, node) for node in usable), _closed(taking)
    if not taking:
        return Unplaceable(Shortage.NO_NODES, f"needs {demand}; the cluster has no node that takes ranks")
    free, everything = sum(room.free_ranks for room in rooms), sum(room.all_ranks for room in rooms)
    if everything < demand.ranks:
        would_fit = sum(_room(demand, node).all_ranks for node in taking) >= demand.ranks
        which = f"the {len(usable)} that are open" if without else f"all {len(usable)} nodes together"
        message = f"needs {demand}; {which} hold {everything} when nothing else runs"
        why = Shortage.NODES_CLOSED if would_fit else Shortage.TOO_LARGE
        return Unplaceable(why, f"{message}{_table(rooms)}{without}", rooms)
    if free < demand.ranks:
        message = f"needs {demand}; {free} of {everything} are free now"
        return Unplaceable(Shortage.BUSY, f"{message}{_table(rooms)}{without}", rooms)
    return Placement(_seats(demand.ranks, [(node, room.free_ranks) for node, room in zip(usable, rooms, strict=True)]))


def place_instead(demand: Demand, ranks: Sequence[int], nodes: Iterable[Node]) -> Placement | Unplaceable:
    """A node of its own for each of so many ranks, in their order: seats whose nodes were lost, and who takes them. The
    largest has the first choice, and takes the tightest fit."""
    taking = _taking(nodes)
    usable = [node for node in taking if not node.closed]
    rooms = {node.id: _room(demand, node) for node in usable}
    left, found = {node.id: node for node in usable}, dict[int, Node]()
    for place, wanted in sorted(enumerate(ranks), key=lambda item: -item[1]):
        enough = [node for node in left.values() if rooms[node.id].free_ranks >= wanted]
        if not enough:
            message = f"no other node has room for {wanted} of {demand.ranks} ranks"
            table = _table(tuple(rooms.values()))
            return Unplaceable(Shortage.BUSY, f"{message}{table}{_closed(taking)}", tuple(rooms.values()))
        found[place] = min(enough, key=lambda node: (rooms[node.id].free_ranks, node.name, node.id))
        del left[found[place].id]
    return Placement(tuple(Seat(found[place], wanted) for place, wanted in enumerate(ranks)))


def fits_empty(demand: Demand, nodes: Iterable[Node]) -> bool:
    """Whether it would fit if nothing else ran."""
    return sum(_room(demand, node).all_ranks for node in _taking(nodes) if not node.closed) >= demand.ranks


def occupy(nodes: Sequence[Node], demand: Demand, placement: Placement) -> list[Node]:
    """The nodes once the placement is taken."""
    taken = {seat.node.id: seat.ranks for seat in placement.seats}
    return [
        replace(
            node,
            free_cpus=node.free_cpus - taken.get(node.id, 0) * demand.cpus,
            free_gpus=node.free_gpus - (taken.get(node.id, 0) if demand.device == "cuda" else 0),
            free_memory_bytes=node.free_memory_bytes - taken.get(node.id, 0) * demand.memory_bytes,
        )
        for node in nodes
    ]


def _taking(nodes: Iterable[Node]) -> list[Node]:
    """Those that take ranks, or would if they were not closed."""
    taking = (node for node in nodes if node.alive and not node.is_control and not node.is_draining)
    return sorted(taking, key=lambda node: (node.name, node.id))


def _seats(ranks: int, rooms: list[tuple[Node, int]]) -> tuple[Seat, ...]:
    """Largest nodes first, which makes them few; the last one is the smallest that holds the rest."""
    left = sorted(rooms, key=lambda item: -item[1])
    seats: list[Seat] = []
    while ranks:
        enough = [item for item in left if item[1] >= ranks]
        chosen = min(enough, key=lambda item: item[1]) if enough else left[0]
        left.remove(chosen)
        seats.append(Seat(chosen[0], min(ranks, chosen[1])))
        ranks -= seats[-1].ranks
    return tuple(sorted(seats, key=lambda seat: (seat.node.name, seat.node.id)))


@dataclass(frozen=True)
class _Need:
    what: str
    each: float
    free: float
    all: float


def _room(demand: Demand, node: Node) -> NodeRoom:
    needs = [_Need("CPU", demand.cpus, node.free_cpus, node.cpus)]
    if demand.device == "cuda":
        needs.append(_Need("CUDA devices", 1, node.free_gpus, node.gpus))
    if demand.memory_bytes:
        gib = 2**30
        needs.append(_Need("GiB", demand.memory_bytes / gib, node.free_memory_bytes / gib, node.memory_bytes / gib))
    scarce = min(needs, key=lambda need: need.free / need.each)
    free = max(0, min(int(need.free // need.each) for need in needs))
    everything = min(int(need.all // need.each) for need in needs)
    whole = demand.segment
    limit = f"{scarce.what}: {scarce.free:g} of {scarce.all:g} free"
    return NodeRoom(node.name, free // whole * whole, everything // whole * whole, limit)


def _table(rooms: Sequence[NodeRoom], most: int = 8) -> str:
    lines = [f"{room.name} holds {room.free_ranks} ({room.limit})" for room in rooms[:most]]
    return (": " if lines else "") + _listed(lines, len(rooms) - most)


def _closed(nodes: Sequence[Node], most: int = 4) -> str:
    """Which nodes cannot be used although they are there, and why."""
    closed = [f"{node.name} is {node.closed}" for node in nodes if node.closed]
    return ("; " if closed else "") + _listed(closed[:most], len(closed) - most)


def _listed(lines: Sequence[str], more: int) -> str:
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")
