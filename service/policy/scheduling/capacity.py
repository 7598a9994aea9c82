"""Count the ranks that nodes can hold. Nodes with equal free resources are counted together.

A count that is too small proves that a job does not fit. Only `place` proves that it fits; it gets the nodes with
capacity and no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from regroup.service.domain.topology import Level, Node, NodeKind
from regroup.service.policy.placement.place import Demand, Placement

ResourceAmounts = tuple[float, float, int]
"""CPU cores, CUDA devices and bytes of host memory."""
_Class = tuple[ResourceAmounts, NodeKind]
"""Nodes with the same free resources and of the same kind, which no demand can distinguish."""
NodeRanks = Sequence[tuple[str, int]]
"""Node id and number of ranks there."""
_Shape = tuple[str, int, int, int, Level, NodeKind]
"""All fields of a demand that determine how many of its ranks fit."""


def ranks_that_fit(demand: Demand, node: Node, free: ResourceAmounts) -> int:
    """Return the number of ranks of the demand that fit into `free` on the node, in whole segments if those stay on a
    node."""
    return _ranks_in(demand, (free, node.kind))


def _ranks_in(demand: Demand, each: _Class) -> int:
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
    """Return the resources of a number of ranks of the demand."""
    return ranks * demand.cpus, ranks if demand.device == "cuda" else 0, ranks * demand.memory_bytes


class Capacity:
    """Open nodes with their free resources. A scheduling pass allocates from it."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.id: node for node in nodes if _is_open(node)}
        self._by_class: dict[_Class, dict[str, None]] = {}
        self._empty_by_class: dict[_Class, int] = {}
        for node in self._nodes.values():
            kind = node.kind
            self._by_class.setdefault((free_of(node), kind), {})[node.id] = None
            whole = (total_of(node), kind)
            self._empty_by_class[whole] = self._empty_by_class.get(whole, 0) + 1
        self._counted: dict[_Shape, int] = {}
        self._counted_empty: dict[_Shape, int] = {}

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def get(self, node: Node) -> Node:
        """Return the node with its current free resources; a node that takes no ranks unchanged."""
        return self._nodes.get(node.id, node)

    def __getitem__(self, node_id: str) -> Node:
        return self._nodes[node_id]

    def free_ranks(self, demand: Demand) -> int:
        """Return the number of ranks that fit now, over all nodes."""
        shape = _shape(demand)
        if shape not in self._counted:
            self._counted[shape] = sum(len(nodes) * _ranks_in(demand, each) for each, nodes in self._by_class.items())
        return self._counted[shape]

    def total_ranks(self, demand: Demand) -> int:
        """Return the number of ranks that would fit if no job ran."""
        shape = _shape(demand)
        if shape not in self._counted_empty:
            self._counted_empty[shape] = sum(
                count * _ranks_in(demand, each) for each, count in self._empty_by_class.items()
            )
        return self._counted_empty[shape]

    def open_nodes(self, demand: Demand) -> list[Node]:
        """Return the nodes on which at least one segment fits now."""
        fitting = (nodes for each, nodes in self._by_class.items() if _ranks_in(demand, each))
        return [self._nodes[node_id] for nodes in fitting for node_id in nodes]

    def candidate_nodes(self, demand: Demand) -> list[Node]:
        """Return the nodes to place the demand on.

        If single nodes hold the whole demand, these are the tightest of them; otherwise all nodes with capacity.
        """
        alone = [left for each in self._by_class if (left := _ranks_in(demand, each)) >= demand.ranks]
        if not alone:
            return self.open_nodes(demand)
        tight = min(alone)
        fitting = (nodes for each, nodes in self._by_class.items() if _ranks_in(demand, each) == tight)
        return [self._nodes[node_id] for nodes in fitting for node_id in nodes]

    def allocate(self, demand: Demand, placement: Placement) -> None:
        """Allocate the slots of a placement."""
        for slot in placement.slots:
            self.lower_free(
                slot.node.id, subtract(free_of(self._nodes[slot.node.id]), resources_of(demand, slot.ranks))
            )

    def lower_free(self, node_id: str, free: ResourceAmounts) -> None:
        """Lower a node's free resources to at most `free`."""
        node = self._nodes[node_id]
        old = free_of(node)
        new = (min(old[0], free[0]), min(old[1], free[1]), min(old[2], free[2]))
        self._counted.clear()
        before, after = (old, node.kind), (new, node.kind)
        del self._by_class[before][node_id]
        if not self._by_class[before]:
            del self._by_class[before]
        self._by_class.setdefault(after, {})[node_id] = None
        self._nodes[node_id] = replace(node, free_cpus=new[0], free_gpus=new[1], free_memory_bytes=new[2])

    def copy(self) -> "Capacity":
        """Return a copy that is allocated from independently."""
        other = Capacity(())
        other._nodes, other._empty_by_class, other._counted_empty = (
            dict(self._nodes),
            self._empty_by_class,
            self._counted_empty,
        )
        other._by_class = {each: dict(nodes) for each, nodes in self._by_class.items()}
        return other

    def excluding(self, demand: Demand) -> "Capacity":
        """Return only the nodes that can never hold a rank of this demand."""
        others = (node for node in self._nodes.values() if not ranks_that_fit(demand, node, total_of(node)))
        return Capacity(others)


class FutureCapacity:
    """Nodes after some jobs have released their devices, for one demand."""

    def __init__(self, capacity: Capacity, demand: Demand) -> None:
        self.demand, self.ranks = demand, capacity.free_ranks(demand)
        """Demand, and the number of its ranks that fit then (`ranks`)."""
        self._capacity = capacity
        self._free: dict[str, ResourceAmounts] = {}

    def release(self, demand: Demand, slots: NodeRanks) -> None:
        """Release the resources of `demand` on these nodes; closed nodes free nothing."""
        self._add(slots, demand, 1)

    def reserve(self, demand: Demand, slots: NodeRanks) -> None:
        """Reserve the resources of `demand` on these nodes for another job."""
        self._add(slots, demand, -1)

    def free_on(self, node_id: str) -> ResourceAmounts:
        """Return the resources of a node that are free then."""
        return self._free.get(node_id) or free_of(self._capacity[node_id])

    def open_nodes(self) -> list[Node]:
        """Return the nodes on which at least one segment fits then."""
        same = [node for node in self._capacity.open_nodes(self.demand) if node.id not in self._free]
        for node_id, free in self._free.items():
            node = self._capacity[node_id]
            if ranks_that_fit(self.demand, node, free):
                same.append(replace(node, free_cpus=free[0], free_gpus=free[1], free_memory_bytes=free[2]))
        return same

    def _add(self, slots: NodeRanks, demand: Demand, sign: int) -> None:
        for node_id, ranks in slots:
            if node_id in self._capacity:
                node, before = self._capacity[node_id], self.free_on(node_id)
                after = subtract(before, resources_of(demand, -sign * ranks))
                self._free[node_id] = after
                self.ranks += ranks_that_fit(self.demand, node, after) - ranks_that_fit(self.demand, node, before)


def free_of(node: Node) -> ResourceAmounts:
    """Return the free resources of a node."""
    return node.free_cpus, node.free_gpus, node.free_memory_bytes


def total_of(node: Node) -> ResourceAmounts:
    """Return the total resources of a node."""
    return node.cpus, node.gpus, node.memory_bytes


def subtract(free: ResourceAmounts, used: ResourceAmounts) -> ResourceAmounts:
    """Return `free` less `used`."""
    return free[0] - used[0], free[1] - used[1], free[2] - used[2]


def _shape(demand: Demand) -> _Shape:
    return demand.device, demand.cpus, demand.memory_bytes, demand.segment, demand.segment_within, demand.kind


def _is_open(node: Node) -> bool:
    return node.alive and not node.is_control and not node.is_draining and not node.closed_reason
