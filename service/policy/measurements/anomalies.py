"""Nodes and links that a probe found unlike the others."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.measurements.outliers import find_slow
from regroup.service.policy.measurements.results import Anomaly, MeasuredNode

Pairs = Sequence[tuple[int, int, float, float]]
"""Of two nodes each, by their place in the list of nodes: bytes a second and seconds of a message between them."""
_GIGA, _TERA = 1e9, 1e12
_WAYS = ("bandwidth", "latency")


def find_wrong_nodes(found: Mapping[str, Any], nodes: Sequence[MeasuredNode]) -> list[Anomaly]:
    """Ranks that collectives brought something else than they must."""
    node_of = {rank: at for at, each in enumerate(found["nodes"]) for rank in each["ranks"]}
    wrong: dict[tuple[int, str], list[int]] = {}
    for name, _, _, size, _, ranks in found["collectives"]:
        for rank in ranks:
            wrong.setdefault((node_of[int(rank)], str(name)), []).append(int(size))
    return [
        Anomaly("node", (nodes[at].name,), "result", f"{name} of {min(sizes)} bytes gave a wrong result there")
        for (at, name), sizes in sorted(wrong.items())
    ]


def find_slow_nodes(nodes: Sequence[MeasuredNode], pairs: Pairs) -> list[Anomaly]:
    """Whose devices compute or copy slowly, or whose best link is slow."""
    told: list[Anomaly] = []
    for dtype in sorted({dtype for node in nodes for dtype in node.flops}):
        flops = {at: node.flops[dtype] for at, node in enumerate(nodes) if dtype in node.flops}
        told += [
            Anomaly("node", (nodes[at].name,), dtype, f"its slowest device multiplies {dtype} at "
                f"{flops[at] / _TERA:.3g} TFLOP/s, {share:.0%} of the usual")
            for at, share in find_slow(flops).items()
        ]  # fmt: skip
    copied = {at: node.memory_bytes_s for at, node in enumerate(nodes)}
    told += [
        Anomaly("node", (nodes[at].name,), "memory", f"its slowest device copies {copied[at] / _GIGA:.3g} GB/s,"
            f" {share:.0%} of the usual")
        for at, share in find_slow(copied).items()
    ]  # fmt: skip
    for measure in _WAYS:
        told += [
            Anomaly("node", (nodes[at].name,), measure, f"{measure} of its best link is {share:.0%} of the usual")
            for at, share in find_slow(_best(_relative(nodes, pairs, measure))).items()
        ]
    return told


def find_slow_links(nodes: Sequence[MeasuredNode], pairs: Pairs) -> list[Anomaly]:
    """Pairs that are slower than what the slower one of the two does with others."""
    told: list[Anomaly] = []
    for measure in _WAYS:
        relative = _relative(nodes, pairs, measure)
        best = _best(relative)
        excused = {(a, b): speed / min(best[a], best[b], 1.0) for (a, b), speed in relative.items()}
        told += [
            Anomaly("link", (nodes[a].name, nodes[b].name), measure,
                f"{measure} of this link is {share:.0%} of what its nodes have with others")
            for (a, b), share in find_slow(excused).items()
        ]  # fmt: skip
    return told


def level_crossed(one: Sequence[str], other: Sequence[str]) -> Level:
    """The largest kind of domain that the way between two nodes leaves, from their domains."""
    for level, mine, theirs in zip(DOMAIN_LEVELS, one, other, strict=True):
        if mine != theirs:
            return level
    # A node that is not said to be in any gpu_domain is one.
    return Level.NODE if one[-1] else Level.GPU_DOMAIN


def _relative(nodes: Sequence[MeasuredNode], pairs: Pairs, measure: str) -> dict[tuple[int, int], float]:
    """Speed of each pair over the median of the pairs whose ways leave the same level. Of latency, its inverse."""
    speeds = {(a, b): bytes_s if measure == "bandwidth" else 1 / latency_s for a, b, bytes_s, latency_s in pairs}
    level = {(a, b): level_crossed(nodes[a].domains, nodes[b].domains) for a, b in speeds}
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
