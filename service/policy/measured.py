"""What a probe of the cluster has measured: read from the words of its ranks, by node and by level; and what is odd.

Which levels a pair of nodes tells of, the tree of domains says: the way from one to the other leaves all domains that
have not both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from regroup.service.policy.islands import Island, fabric, islands
from regroup.service.policy.outliers import slow
from regroup.service.policy.topology import DOMAIN_LEVELS, Level

_GIGA, _TERA = 1e9, 1e12


@dataclass(frozen=True)
class MeasuredNode:
    """A node by itself, all of its devices at work."""

    name: str
    ranks: int
    domains: tuple[str, ...]
    """Of `DOMAIN_LEVELS`, when it was measured."""
    flops: Mapping[str, float]
    """Operations a second of its slowest device in large products, by dtype."""
    memory_bytes_s: float
    """Of its slowest device."""
    islands: tuple[Island, ...]
    fabric: str
    """What NVLink joins its devices to across nodes; empty if nothing."""


@dataclass(frozen=True)
class MeasuredLevel:
    """The way out of domains of a level, as their devices share it: the median of what was measured of it."""

    level: Level
    bytes_s: float
    latency_s: float
    slowest_bytes_s: float
    pairs: int
    """Of nodes; 0 for what is inside of nodes, which rings measure."""


@dataclass(frozen=True)
class MeasuredCollective:
    """One collective at one size."""

    name: str
    scope: str
    """`all` ranks, or those of each `node` among themselves."""
    ranks: int
    size_bytes: int
    seconds: float

    @property
    def bus_bytes_s(self) -> float:
        """What a link carries, as nccl-tests counts it: alike for all numbers of ranks where links are the limit."""
        share = 1.0 if self.name == "broadcast" else (self.ranks - 1) / self.ranks
        return (2 if self.name == "all_reduce" else 1) * share * self.size_bytes / self.seconds


@dataclass(frozen=True)
class MeasuredProduct:
    """Products of square matrices, by the median device."""

    dtype: str
    side: int
    flops: float


@dataclass(frozen=True)
class MeasuredBlock:
    """Forward and backward of the built-in transformer's block in 32 bits, on all ranks at once."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    seconds: float


@dataclass(frozen=True)
class MeasuredStep:
    """A whole step of a tiny model, which has next to nothing to compute."""

    kind: str
    """How it was spread: `ddp`, `fsdp`, `tp` or `pp`."""
    layers: int
    micro_batches: int
    seconds: float


@dataclass(frozen=True)
class Shape:
    """A transformer beside its depth, and what it is given: `batch` samples of a micro-batch."""

    batch: int
    sequence: int
    dim: int
    heads: int
    ffn: int
    vocabulary: int


@dataclass(frozen=True)
class MeasuredLoad:
    """A whole step of a transformer that has something to compute, in 32 bits."""

    kind: str
    layers: int
    micro_batches: int
    shape: Shape
    seconds: float


@dataclass(frozen=True)
class Odd:
    """A node or a link that is not like the others."""

    kind: str
    """`node` or `link`."""
    nodes: tuple[str, ...]
    measure: str
    """`result`, `memory`, `bandwidth`, `latency`, or a dtype."""
    message: str


@dataclass(frozen=True)
class Measured:
    """One probe's result."""

    job_id: str
    time_s: float
    """When it ended, Unix seconds."""
    kind: str
    """`cpu` or `cuda`."""
    device: str
    """As the driver calls it."""
    ranks: int
    nodes: tuple[MeasuredNode, ...]
    levels: tuple[MeasuredLevel, ...]
    """The innermost first; only those that were measured."""
    collectives: tuple[MeasuredCollective, ...]
    products: tuple[MeasuredProduct, ...]
    odd: tuple[Odd, ...]
    blocks: tuple[MeasuredBlock, ...] = ()
    """Of CPUs, like all that follow."""
    steps: tuple[MeasuredStep, ...] = ()
    alone_flops: float | None = None
    """Operations a second of one rank's products while all others wait."""
    rank_bytes: float | None = None
    """What a rank's process takes that trains next to nothing."""
    loads: tuple[MeasuredLoad, ...] = ()
    """By how they were spread; none of earlier probes."""


def read(
    found: Mapping[str, Any],
    nodes: Sequence[tuple[str, tuple[str, ...]]],
    *,
    job_id: str,
    time_s: float,
) -> Measured:
    """The result of a probe (`workers/probe/run.py`).

    Args:
        nodes: of each, what it is called for good and its domains, as the probe numbered them.

    Raises:
        KeyError, TypeError, ValueError, IndexError: it is no such result.
    """
    by_node = tuple(
        MeasuredNode(
            nodes[at][0],
            len(each["ranks"]),
            nodes[at][1],
            dict(each["flops"]),
            float(each["memory_bytes_s"]),
            islands(each["inside"]),
            fabric(each["inside"]),
        )
        for at, each in enumerate(found["nodes"])
    )
    pairs = [(int(a), int(b), float(bytes_s), float(latency_s)) for a, b, bytes_s, latency_s in found["pairs"]]
    levels = _levels(by_node, pairs, found["rings"])
    return Measured(
        job_id,
        time_s,
        str(found["kind"]),
        str(found["device"]),
        sum(node.ranks for node in by_node),
        by_node,
        levels,
        tuple(
            MeasuredCollective(str(name), str(scope), int(ranks), int(size), float(seconds))
            for name, scope, ranks, size, seconds, _ in found["collectives"]
        ),
        tuple(MeasuredProduct(str(dtype), int(side), float(flops)) for dtype, side, flops in found["products"]),
        (*_wrong(found, by_node), *_slow_nodes(by_node, pairs), *_slow_links(by_node, pairs)),
        tuple(
            MeasuredBlock(int(batch), int(sequence), int(dim), int(heads), int(ffn), float(seconds))
            for batch, sequence, dim, heads, ffn, seconds in found["blocks"]
        ),
        tuple(
            MeasuredStep(str(kind), int(layers), int(count), float(seconds))
            for kind, layers, count, seconds in found["steps"]
        ),
        None if found["alone_flops"] is None else float(found["alone_flops"]),
        None if found.get("rank_bytes") is None else float(found["rank_bytes"]),  # earlier probes have none
        tuple(
            MeasuredLoad(str(kind), int(layers), int(count), Shape(*map(int, shape)), float(seconds))
            for kind, layers, count, shape, seconds in found.get("loads", ())  # likewise
        ),
    )


def fabrics_of(probes: Sequence[Measured]) -> dict[str, str]:
    """What a node is called for good → the NVLink fabric that a probe has found it in."""
    return {node.name: node.fabric for probe in probes for node in probe.nodes if node.fabric}


def leaves(one: Sequence[str], other: Sequence[str]) -> Level:
    """The largest kind of domain that the way between two nodes leaves, from their domains."""
    for level, mine, theirs in zip(DOMAIN_LEVELS, one, other, strict=True):
        if mine != theirs:
            return level
    # A node that is not said to be in any gpu_domain is one.
    return Level.NODE if one[-1] else Level.GPU_DOMAIN


_Pairs = Sequence[tuple[int, int, float, float]]


def _levels(nodes: Sequence[MeasuredNode], pairs: _Pairs, rings: Mapping[str, Any]) -> tuple[MeasuredLevel, ...]:
    found: list[MeasuredLevel] = []
    inside = rings.get("node" if len(nodes) > 1 else "all")
    if inside is not None:
        bytes_s, latency_s = float(inside[1]), float(inside[2])
        found.append(MeasuredLevel(Level.DEVICE, bytes_s, latency_s, bytes_s, 0))
    for level in reversed([*DOMAIN_LEVELS, Level.NODE]):
        of_it = [pair for pair in pairs if leaves(nodes[pair[0]].domains, nodes[pair[1]].domains) is level]
        if of_it:
            speeds = [pair[2] for pair in of_it]
            found.append(
                MeasuredLevel(level, median(speeds), median(pair[3] for pair in of_it), min(speeds), len(of_it))
            )
    return tuple(found)


def _wrong(found: Mapping[str, Any], nodes: Sequence[MeasuredNode]) -> list[Odd]:
    """Ranks that collectives brought something else than they must."""
    node_of = {rank: at for at, each in enumerate(found["nodes"]) for rank in each["ranks"]}
    wrong: dict[tuple[int, str], list[int]] = {}
    for name, _, _, size, _, ranks in found["collectives"]:
        for rank in ranks:
            wrong.setdefault((node_of[int(rank)], str(name)), []).append(int(size))
    return [
        Odd("node", (nodes[at].name,), "result", f"{name} of {min(sizes)} bytes gave a wrong result there")
        for (at, name), sizes in sorted(wrong.items())
    ]


def _slow_nodes(nodes: Sequence[MeasuredNode], pairs: _Pairs) -> list[Odd]:
    told: list[Odd] = []
    for dtype in sorted({dtype for node in nodes for dtype in node.flops}):
        flops = {at: node.flops[dtype] for at, node in enumerate(nodes) if dtype in node.flops}
        told += [
            Odd("node", (nodes[at].name,), dtype, f"its slowest device multiplies {dtype} at {flops[at] / _TERA:.3g}"
                f" TFLOP/s, {share:.0%} of the usual")
            for at, share in slow(flops).items()
        ]  # fmt: skip
    copied = {at: node.memory_bytes_s for at, node in enumerate(nodes)}
    told += [
        Odd("node", (nodes[at].name,), "memory", f"its slowest device copies {copied[at] / _GIGA:.3g} GB/s,"
            f" {share:.0%} of the usual")
        for at, share in slow(copied).items()
    ]  # fmt: skip
    for measure in _WAYS:
        told += [
            Odd("node", (nodes[at].name,), measure, f"{measure} of its best link is {share:.0%} of the usual")
            for at, share in slow(_best(_relative(nodes, pairs, measure))).items()
        ]
    return told


def _slow_links(nodes: Sequence[MeasuredNode], pairs: _Pairs) -> list[Odd]:
    """Pairs that are slower than what the slower one of the two does with others."""
    told: list[Odd] = []
    for measure in _WAYS:
        relative = _relative(nodes, pairs, measure)
        best = _best(relative)
        excused = {(a, b): speed / min(best[a], best[b], 1.0) for (a, b), speed in relative.items()}
        told += [
            Odd("link", (nodes[a].name, nodes[b].name), measure,
                f"{measure} of this link is {share:.0%} of what its nodes have with others")
            for (a, b), share in slow(excused).items()
        ]  # fmt: skip
    return told


_WAYS = ("bandwidth", "latency")


def _relative(nodes: Sequence[MeasuredNode], pairs: _Pairs, measure: str) -> dict[tuple[int, int], float]:
    """Speed of each pair over the median of the pairs whose ways leave the same level. Of latency, its inverse."""
    speeds = {(a, b): bytes_s if measure == "bandwidth" else 1 / latency_s for a, b, bytes_s, latency_s in pairs}
    level = {(a, b): leaves(nodes[a].domains, nodes[b].domains) for a, b in speeds}
    usual = {
        each: median(speed for pair, speed in speeds.items() if level[pair] is each) for each in set(level.values())
    }
    return {pair: speed / usual[level[pair]] for pair, speed in speeds.items()}


def _best(relative: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Node → its best link: one bad link is not its fault, and all bad links are."""
    best: dict[int, float] = {}
    for pair, speed in relative.items():
        for node in pair:
            best[node] = max(speed, best.get(node, 0.0))
    return best
