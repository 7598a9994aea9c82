"""How many ranks nodes hold, without looking at every node for every job: nodes that are alike are counted together.

What is asked of it are counts. A count that is too small proves that a job does not fit; that it does is for `place` to
say, which is given the nodes that have room and no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from regroup.service.domain.topology import Level, Node, NodeKind
from regroup.service.policy.placement.place import Demand, Placement

ResourceAmounts = tuple[float, float, int]
"""Cores, CUDA devices and bytes of host memory."""
_Class = tuple[ResourceAmounts, NodeKind]
"""Nodes of which as much is free, and which are of one kind: a demand sees no difference."""
NodeRanks = Sequence[tuple[str, int]]
"""Node id and ranks there."""
_Shape = tuple[str, int, int, int, Level, NodeKind]
"""All of a demand that says how much room there is for its ranks."""


def ranks_that_fit(demand: Demand, node: Node, free: ResourceAmounts) -> int:
    """Ranks of the demand that the node holds with so much free, in whole segments where those stay on a node."""
    return _room(demand, (free, node.kind))


def _room(demand: Demand, each: _Class) -> int:
    free, kind = each
    if not kind.satisfies(demand.kind):
        return 0
    ranks = free[0] // demand.cpus
    if demand.device == "cuda":
        ranks = min(ranks, free[1])
    if demand.memory_bytes:
        ranks = min(ranks, free[2] // demand.memory_bytes)
    grain = demand.segment if demand.segment_within is Level.NODE else 1
    return max(0, int(ranks)) // grain * grain


def resources_of(demand: Demand, ranks: int) -> ResourceAmounts:
    """What so many ranks of the demand hold."""
    return ranks * demand.cpus, ranks if demand.device == "cuda" else 0, ranks * demand.memory_bytes


class Capacity:
    """Open nodes that take ranks, with what they have free; what is taken in a look is taken from it."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.id: node for node in nodes if _is_open(node)}
        self._alike: dict[_Class, dict[str, None]] = {}
        self._empty: dict[_Class, int] = {}
        for node in self._nodes.values():
            kind = node.kind
            self._alike.setdefault((free_of(node), kind), {})[node.id] = None
            whole = (total_of(node), kind)
            self._empty[whole] = self._empty.get(whole, 0) + 1
        self._counted: dict[_Shape, int] = {}
        self._counted_empty: dict[_Shape, int] = {}

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def get(self, node: Node) -> Node:
        """The node as it is now; one that takes nothing as it was."""
        return self._nodes.get(node.id, node)

    def __getitem__(self, node_id: str) -> Node:
        return self._nodes[node_id]

    def free(self, demand: Demand) -> int:
        """Ranks that fit now, all nodes together."""
        shape = _shape(demand)
        if shape not in self._counted:
            self._counted[shape] = sum(len(nodes) * _room(demand, each) for each, nodes in self._alike.items())
        return self._counted[shape]

    def all(self, demand: Demand) -> int:
        """Ranks that would fit if nothing ran."""
        shape = _shape(demand)
        if shape not in self._counted_empty:
            self._counted_empty[shape] = sum(count * _room(demand, each) for each, count in self._empty.items())
        return self._counted_empty[shape]

    def with_room(self, demand: Demand) -> list[Node]:
        """Nodes on which at least one segment fits now."""
        fitting = (nodes for each, nodes in self._alike.items() if _room(demand, each))
        return [self._nodes[node_id] for nodes in fitting for node_id in nodes]

    def candidates(self, demand: Demand) -> list[Node]:
        """Nodes among which it is placed: where some hold it alone, those of them that it fits most tightly; else all
        with room."""
        alone = [left for each in self._alike if (left := _room(demand, each)) >= demand.ranks]
        if not alone:
            return self.with_room(demand)
        tight = min(alone)
        fitting = (nodes for each, nodes in self._alike.items() if _room(demand, each) == tight)
        return [self._nodes[node_id] for nodes in fitting for node_id in nodes]

    def take(self, demand: Demand, placement: Placement) -> None:
        """The placement's seats are taken."""
        for seat in placement.slots:
            self.lower(seat.node.id, subtract(free_of(self._nodes[seat.node.id]), resources_of(demand, seat.ranks)))

    def lower(self, node_id: str, free: ResourceAmounts) -> None:
        """A node has no more free than this."""
        node = self._nodes[node_id]
        old = free_of(node)
        new = (min(old[0], free[0]), min(old[1], free[1]), min(old[2], free[2]))
        self._counted.clear()
        before, after = (old, node.kind), (new, node.kind)
        del self._alike[before][node_id]
        if not self._alike[before]:
            del self._alike[before]
        self._alike.setdefault(after, {})[node_id] = None
        self._nodes[node_id] = replace(node, free_cpus=new[0], free_gpus=new[1], free_memory_bytes=new[2])

    def copy(self) -> "Capacity":
        """One that is taken from by itself."""
        other = Capacity(())
        other._nodes, other._empty, other._counted_empty = dict(self._nodes), self._empty, self._counted_empty
        other._alike = {each: dict(nodes) for each, nodes in self._alike.items()}
        return other

    def without(self, demand: Demand) -> "Capacity":
        """Only the nodes that could never hold a rank of this demand."""
        others = (node for node in self._nodes.values() if not ranks_that_fit(demand, node, total_of(node)))
        return Capacity(others)


class Freed:
    """The nodes as they are once some jobs have let go of theirs, for one demand."""

    def __init__(self, rooms: Capacity, demand: Demand) -> None:
        self.demand, self.ranks = demand, rooms.free(demand)
        """`ranks`: so many fit."""
        self._rooms = rooms
        self._free: dict[str, ResourceAmounts] = {}

    def release(self, demand: Demand, seats: NodeRanks) -> None:
        """Ranks of `demand` on these seats are gone; seats on nodes that are closed free nothing."""
        self._add(seats, demand, 1)

    def reserve(self, demand: Demand, seats: NodeRanks) -> None:
        """These seats will be another's."""
        self._add(seats, demand, -1)

    def free_on(self, node_id: str) -> ResourceAmounts:
        """What the node has free then."""
        return self._free.get(node_id) or free_of(self._rooms[node_id])

    def with_room(self) -> list[Node]:
        """Nodes on which at least one segment fits then."""
        same = [node for node in self._rooms.with_room(self.demand) if node.id not in self._free]
        for node_id, free in self._free.items():
            node = self._rooms[node_id]
            if ranks_that_fit(self.demand, node, free):
                same.append(replace(node, free_cpus=free[0], free_gpus=free[1], free_memory_bytes=free[2]))
        return same

    def _add(self, seats: NodeRanks, demand: Demand, sign: int) -> None:
        for node_id, ranks in seats:
            if node_id in self._rooms:
                node, before = self._rooms[node_id], self.free_on(node_id)
                after = subtract(before, resources_of(demand, -sign * ranks))
                self._free[node_id] = after
                self.ranks += ranks_that_fit(self.demand, node, after) - ranks_that_fit(self.demand, node, before)


def free_of(node: Node) -> ResourceAmounts:
    """What a node has free."""
    return node.free_cpus, node.free_gpus, node.free_memory_bytes


def total_of(node: Node) -> ResourceAmounts:
    """What a node has when nothing runs there."""
    return node.cpus, node.gpus, node.memory_bytes


def subtract(free: ResourceAmounts, used: ResourceAmounts) -> ResourceAmounts:
    """What is left of it."""
    return free[0] - used[0], free[1] - used[1], free[2] - used[2]


def _shape(demand: Demand) -> _Shape:
    return demand.device, demand.cpus, demand.memory_bytes, demand.segment, demand.segment_within, demand.kind


def _is_open(node: Node) -> bool:
    return node.alive and not node.is_control and not node.is_draining and not node.closed_reason
