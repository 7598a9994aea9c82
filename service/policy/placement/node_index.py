"""The nodes of one cluster in topology order, as columns. A domain is a range of them.

The index is created once per scheduling pass and used for every job. Work per job and node happens only in list
comprehensions.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise

from regroup.service.domain.topology import ANY_KIND, DOMAIN_LEVELS, Level, Node, NodeKind, domains_of
from regroup.service.policy.placement.demand import Demand, Placement

_Shape = tuple[str, int, int, NodeKind]
"""Device type, cores and bytes of a rank, and the kind of its node. Demands of one shape see the same capacity."""


class NodeIndex:
    """Free resources of nodes that can take ranks. Only `allocate` and `release` change them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        eligible = [node for node in nodes if node.alive and not node.is_control and not node.is_draining]
        self.closed: tuple[Node, ...] = tuple(
            sorted((node for node in eligible if node.closed_reason), key=lambda node: (node.name, node.id))
        )
        """Nodes that would take ranks if they were open."""
        keyed = sorted(
            [(domains_of(node), node.name, node.id, at) for at, node in enumerate(eligible) if not node.closed_reason]
        )
        self.paths: Sequence[tuple[str, ...]] = [key[0] for key in keyed]
        self.nodes: Sequence[Node] = [eligible[key[3]] for key in keyed]
        """Open nodes, those of a domain next to each other."""
        self.domain_numbers: Sequence[Sequence[int]]
        """For each of `DOMAIN_LEVELS`: node → number of its domain."""
        self.domain_starts: Sequence[Sequence[int]]
        """For each of `DOMAIN_LEVELS`: first node of each domain, and one past the last node."""
        self.domain_numbers, self.domain_starts = _domains(self.paths)
        paths = set(self.paths)
        self._named = [any(path[level] for path in paths) for level in range(len(DOMAIN_LEVELS))]
        self._cpus = [node.free_cpus for node in self.nodes]
        self._gpus = [node.free_gpus for node in self.nodes]
        self._memory = [node.free_memory_bytes for node in self.nodes]
        self._free: dict[_Shape, list[int]] = {}
        self._all: dict[_Shape, list[int]] = {}
        self._sums: dict[tuple[_Shape, int, Level, int], list[int]] = {}

    @classmethod
    def for_demand(cls, demand: Demand, nodes: "Iterable[Node] | NodeIndex") -> "NodeIndex":
        """Return the index of the nodes in the demand's cluster; an index of one cluster unchanged."""
        if isinstance(nodes, NodeIndex):
            return nodes
        return cls(node for node in nodes if node.cluster == demand.kind.cluster)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def free_ranks(self, demand: Demand) -> Sequence[int]:
        """Return the number of ranks that fit on each node now, as whole segments or not."""
        shape = _shape(demand)
        if shape not in self._free:
            self._free[shape] = self._suiting(demand, _fitting(demand, self._cpus, self._gpus, self._memory))
        return self._free[shape]

    def total_ranks(self, demand: Demand) -> Sequence[int]:
        """Return the number of ranks that fit on each empty node."""
        shape = _shape(demand)
        if shape not in self._all:
            nodes = self.nodes
            columns = ([n.cpus for n in nodes], [n.gpus for n in nodes], [n.memory_bytes for n in nodes])
            self._all[shape] = self._suiting(demand, _fitting(demand, *columns))
        return self._all[shape]

    def domain_sums(self, demand: Demand, level: int) -> Sequence[int]:
        """Return the number of ranks that fit in each domain of `DOMAIN_LEVELS[level]` now, in whole segments; for
        level -1 in the cluster."""
        key = (_shape(demand), demand.segment, demand.segment_within, level)
        if key not in self._sums:
            self._sums[key] = totals(demand, self.free_ranks(demand), self.domain_starts, level)
        return self._sums[key]

    def has_level(self, level: Level | None) -> bool:
        """Return True if the domains of this level are known."""
        if level not in DOMAIN_LEVELS or level is Level.GPU_DOMAIN:
            return True  # a node is one
        return self._named[DOMAIN_LEVELS.index(level)]

    def allocate(self, demand: Demand, placement: Placement) -> None:
        """Allocate the resources of a placement."""
        self._change(demand, placement, -1)

    def release(self, demand: Demand, placement: Placement) -> None:
        """Release the resources of a placement."""
        self._change(demand, placement, 1)

    def first_by_name(self, most: int) -> list[int]:
        """Return the first nodes by name."""
        return self._by_name[:most]

    def free_resources(self, at: int) -> tuple[float, float, float]:
        """Return the free cores, devices and bytes of a node."""
        return self._cpus[at], self._gpus[at], self._memory[at]

    def domain_name(self, level: Level, at: int) -> str:
        """Return the name of a node's domain at a level, for people."""
        if level is Level.NODE:
            return f"node {self.nodes[at].name}"
        names = [name for name in self.paths[at][: DOMAIN_LEVELS.index(level) + 1] if name]
        return f"{level} {'/'.join(names) or self.nodes[at].name}"

    @cached_property
    def _index(self) -> dict[str, int]:
        return {node.id: at for at, node in enumerate(self.nodes)}

    @cached_property
    def _by_name(self) -> list[int]:
        return sorted(range(len(self.nodes)), key=lambda at: (self.nodes[at].name, self.nodes[at].id))

    @cached_property
    def _kinds(self) -> list[NodeKind]:
        return [node.kind for node in self.nodes]

    def _suiting(self, demand: Demand, fitting: list[int]) -> list[int]:
        """Set the capacity of nodes that do not satisfy the demand's kind to zero."""
        if demand.kind == ANY_KIND:
            return fitting
        return [ranks if kind.satisfies(demand.kind) else 0 for ranks, kind in zip(fitting, self._kinds, strict=True)]

    def _change(self, demand: Demand, placement: Placement, sign: int) -> None:
        for slot in placement.slots:
            if (at := self._index.get(slot.node.id)) is None:
                continue  # the node left the cluster, or was closed
            self._cpus[at] += sign * slot.ranks * demand.cpus
            self._gpus[at] += sign * slot.ranks if demand.device == "cuda" else 0
            self._memory[at] += sign * slot.ranks * demand.memory_bytes
            for (device, cpus, memory, kind), column in self._free.items():
                if not self._kinds[at].satisfies(kind):
                    continue
                one = Demand(1, 1, device, cpus, memory)
                column[at] = _fitting(one, [self._cpus[at]], [self._gpus[at]], [self._memory[at]])[0]
        self._sums.clear()


def totals(demand: Demand, caps: Sequence[int], starts: Sequence[Sequence[int]], level: int) -> list[int]:
    """Return the sums of any column by domain, as `NodeIndex.domain_sums`."""
    segment = demand.segment
    if segment > 1 and demand.segment_within is Level.NODE:
        caps = [cap // segment * segment for cap in caps]
    elif segment > 1:
        inner = starts[-1]
        runs = list(accumulate(caps, initial=0))
        sizes = [(runs[b] - runs[a]) // segment * segment for a, b in pairwise(inner)]
        runs = list(accumulate(sizes, initial=0))
        if level < 0:
            return [runs[-1]]
        place = {start: at for at, start in enumerate(inner)}
        bounds = starts[level]
        return [runs[place[b]] - runs[place[a]] for a, b in pairwise(bounds)]
    if level < 0:
        return [sum(caps)]
    runs, bounds = list(accumulate(caps, initial=0)), starts[level]
    return [runs[b] - runs[a] for a, b in pairwise(bounds)]


def _shape(demand: Demand) -> _Shape:
    return demand.device, demand.cpus, demand.memory_bytes, demand.kind


def _fitting(demand: Demand, cpus: Sequence[float], gpus: Sequence[float], memory: Sequence[float]) -> list[int]:
    each = demand.cpus
    fitting = [int(free // each) for free in cpus]
    if demand.device == "cuda":
        fitting = [ranks if ranks < free else int(free) for ranks, free in zip(fitting, gpus, strict=True)]
    if demand.memory_bytes:
        fitting = [min(n, int(free // demand.memory_bytes)) for n, free in zip(fitting, memory, strict=True)]
    return [ranks if ranks > 0 else 0 for ranks in fitting]


def _domains(paths: Sequence[tuple[str, ...]]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the numbers of each node's domains, and the start of each domain.

    If only some nodes are labelled at a level, each unlabelled node is its own domain.
    """
    depth = len(DOMAIN_LEVELS)
    alone = [any(path[level] for path in set(paths)) for level in range(depth - 1)] + [True]
    numbers: list[list[int]] = [[] for _ in range(depth)]
    starts: list[list[int]] = [[] for _ in range(depth)]
    before: tuple[str, ...] | None = None
    at = 0
    for path, run in groupby(paths):
        count = len(list(run))
        is_new = before is None
        stands_alone = False
        for level, name in enumerate(path):
            is_new = is_new or name != (before or path)[level]
            stands_alone = stands_alone or (not name and alone[level])
            if stands_alone:
                first = len(starts[level])
                starts[level].extend(range(at, at + count))
                numbers[level].extend(range(first, first + count))
            else:
                if is_new:
                    starts[level].append(at)
                numbers[level].extend([len(starts[level]) - 1] * count)
        before = path
        at += count
    for bounds in starts:
        bounds.append(at)
    return numbers, starts
