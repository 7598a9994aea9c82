"""The nodes of a cluster in the order of its topology, as columns: a domain is a range of them.

A site is made once for a look at the queue, and asked for every job: nothing here is done per job and node but in list
comprehensions.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise

from regroup.service.domain.topology import ANY_KIND, DOMAIN_LEVELS, Level, Node, NodeKind, domains_of
from regroup.service.policy.placement.demand import Demand, Placement

_Shape = tuple[str, int, int, NodeKind]
"""Kind of device, cores and bytes of a rank, and what its node has to be: demands of one shape see the same room."""


class NodeIndex:
    """What is free on nodes that may take ranks. It changes by `take` and `give` alone."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        taking = [node for node in nodes if node.alive and not node.is_control and not node.is_draining]
        self.closed: tuple[Node, ...] = tuple(
            sorted((node for node in taking if node.closed_reason), key=lambda node: (node.name, node.id))
        )
        """Nodes that would take ranks if they were open."""
        keyed = sorted(
            [(domains_of(node), node.name, node.id, at) for at, node in enumerate(taking) if not node.closed_reason]
        )
        self.paths: Sequence[tuple[str, ...]] = [key[0] for key in keyed]
        self.nodes: Sequence[Node] = [taking[key[3]] for key in keyed]
        """Open nodes, those of a domain together."""
        self.domain_numbers: Sequence[Sequence[int]]
        """Of each of `DOMAIN_LEVELS`: node → number of its domain."""
        self.domain_starts: Sequence[Sequence[int]]
        """Of each of `DOMAIN_LEVELS`: where each domain begins, and one past the last node."""
        self.domain_numbers, self.domain_starts = _domains(self.paths)
        paths = set(self.paths)
        self._named = [any(path[level] for path in paths) for level in range(len(DOMAIN_LEVELS))]
        self._cpus = [node.free_cpus for node in self.nodes]
        self._gpus = [node.free_gpus for node in self.nodes]
        self._memory = [node.free_memory_bytes for node in self.nodes]
        self._free: dict[_Shape, list[int]] = {}
        self._all: dict[_Shape, list[int]] = {}
        self._sums: dict[tuple[_Shape, int, Level, int], list[int]] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def free_ranks(self, demand: Demand) -> Sequence[int]:
        """Ranks that fit on each node now, whole segments or not."""
        shape = _shape(demand)
        if shape not in self._free:
            self._free[shape] = self._suiting(demand, _fitting(demand, self._cpus, self._gpus, self._memory))
        return self._free[shape]

    def total_ranks(self, demand: Demand) -> Sequence[int]:
        """Ranks that fit on each node when nothing else runs."""
        shape = _shape(demand)
        if shape not in self._all:
            nodes = self.nodes
            columns = ([n.cpus for n in nodes], [n.gpus for n in nodes], [n.memory_bytes for n in nodes])
            self._all[shape] = self._suiting(demand, _fitting(demand, *columns))
        return self._all[shape]

    def domain_sums(self, demand: Demand, level: int) -> Sequence[int]:
        """Ranks that fit in each domain of `DOMAIN_LEVELS[level]` now, in whole segments; of level -1: in all."""
        key = (_shape(demand), demand.segment, demand.segment_within, level)
        if key not in self._sums:
            self._sums[key] = totals(demand, self.free_ranks(demand), self.domain_starts, level)
        return self._sums[key]

    def has_level(self, level: Level | None) -> bool:
        """Whether it can be said which nodes are of one domain of this level."""
        if level not in DOMAIN_LEVELS or level is Level.GPU_DOMAIN:
            return True  # a node is one
        return self._named[DOMAIN_LEVELS.index(level)]

    def allocate(self, demand: Demand, placement: Placement) -> None:
        """Hold what the placement needs."""
        self._change(demand, placement, -1)

    def release(self, demand: Demand, placement: Placement) -> None:
        """Give back what was taken."""
        self._change(demand, placement, 1)

    def first_by_name(self, most: int) -> list[int]:
        """The first nodes by name."""
        return self._by_name[:most]

    def free_resources(self, at: int) -> tuple[float, float, float]:
        """Free cores, devices and bytes of a node."""
        return self._cpus[at], self._gpus[at], self._memory[at]

    def domain_name(self, level: Level, at: int) -> str:
        """The domain of a level that a node is in, for people."""
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
        """Nothing fits on nodes of another kind."""
        if demand.kind == ANY_KIND:
            return fitting
        return [ranks if kind.satisfies(demand.kind) else 0 for ranks, kind in zip(fitting, self._kinds, strict=True)]

    def _change(self, demand: Demand, placement: Placement, sign: int) -> None:
        for seat in placement.slots:
            if (at := self._index.get(seat.node.id)) is None:
                continue  # it left, or was closed
            self._cpus[at] += sign * seat.ranks * demand.cpus
            self._gpus[at] += sign * seat.ranks if demand.device == "cuda" else 0
            self._memory[at] += sign * seat.ranks * demand.memory_bytes
            for (device, cpus, memory, kind), column in self._free.items():
                if not self._kinds[at].satisfies(kind):
                    continue
                one = Demand(1, 1, device, cpus, memory)
                column[at] = _fitting(one, [self._cpus[at]], [self._gpus[at]], [self._memory[at]])[0]
        self._sums.clear()


def totals(demand: Demand, caps: Sequence[int], starts: Sequence[Sequence[int]], level: int) -> list[int]:
    """As `NodeIndex.sums`, of any column."""
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
    """Numbers of the domains of each node, and where each begins. A level that some are said to be in and others are
    not is one in which these stand alone: nothing is known of who is beside them."""
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
