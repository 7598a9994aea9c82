"""Find nodes and links whose probe results are outliers, with a rule that is robust against the outliers themselves."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.measurements.results import Anomaly, MeasuredNode

Pairs = Sequence[tuple[int, int, float, float]]
"""For two nodes each, by their index: bandwidth in bytes per second, and latency in seconds."""
_GIGA, _TERA = 1e9, 1e12
_MEASURES = ("bandwidth", "latency")
LEAST = 3
"""Smallest number of values in which an outlier can be identified."""
SCORE = 3.5
"""Modified z-score from which a value is an outlier (Iglewicz and Hoaglin 1993)."""
MARGIN = 0.15
"""Fraction below the median that is not reported, however similar the other values are."""
_NORMAL = 0.6745
"""Median absolute deviation of a normal distribution, in standard deviations."""
Key = TypeVar("Key")


def find_wrong_nodes(found: Mapping[str, Any], nodes: Sequence[MeasuredNode]) -> list[Anomaly]:
    """Return the nodes with ranks that got a wrong collective result."""
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
    """Return the nodes with slow devices, slow memory or a slow best link."""
    found: list[Anomaly] = []
    for dtype in sorted({dtype for node in nodes for dtype in node.flops}):
        flops = {at: node.flops[dtype] for at, node in enumerate(nodes) if dtype in node.flops}
        found += [
            Anomaly("node", (nodes[at].name,), dtype, f"its slowest device reaches {dtype} "
                f"{flops[at] / _TERA:.3g} TFLOP/s, {share:.0%} of the median")
            for at, share in find_slow(flops).items()
        ]  # fmt: skip
    copied = {at: node.memory_bytes_s for at, node in enumerate(nodes)}
    found += [
        Anomaly("node", (nodes[at].name,), "memory", f"its slowest device copies {copied[at] / _GIGA:.3g} GB/s,"
            f" {share:.0%} of the median")
        for at, share in find_slow(copied).items()
    ]  # fmt: skip
    for measure in _MEASURES:
        found += [
            Anomaly("node", (nodes[at].name,), measure, f"{measure} of its best link is {share:.0%} of the median")
            for at, share in find_slow(_best(_relative(nodes, pairs, measure))).items()
        ]
    return found


def find_slow_links(nodes: Sequence[MeasuredNode], pairs: Pairs) -> list[Anomaly]:
    """Return the links that are slower than the links of their slower node to other nodes."""
    found: list[Anomaly] = []
    for measure in _MEASURES:
        relative = _relative(nodes, pairs, measure)
        best = _best(relative)
        excused = {(a, b): speed / min(best[a], best[b], 1.0) for (a, b), speed in relative.items()}
        found += [
            Anomaly("link", (nodes[a].name, nodes[b].name), measure,
                f"{measure} of this link is {share:.0%} of its nodes' other links")
            for (a, b), share in find_slow(excused).items()
        ]  # fmt: skip
    return found


def level_crossed(one: Sequence[str], other: Sequence[str]) -> Level:
    """Return the largest kind of domain that the path between two nodes leaves."""
    for level, mine, theirs in zip(DOMAIN_LEVELS, one, other, strict=True):
        if mine != theirs:
            return level
    # A node without a gpu_domain is its own.
    return Level.NODE if one[-1] else Level.GPU_DOMAIN


def find_slow(speeds: Mapping[Key, float]) -> dict[Key, float]:
    """Return the outliers below, with their fraction of the median, the slowest first.

    Deviations from the median are measured in median absolute deviations: up to half of the values can be outliers
    without changing either.
    """
    if len(speeds) < LEAST:
        return {}
    usual = median(speeds.values())
    if usual <= 0:
        return {}
    spread = median(abs(speed - usual) for speed in speeds.values())
    found = {
        key: speed / usual
        for key, speed in speeds.items()
        if speed < (1 - MARGIN) * usual and _NORMAL * (usual - speed) > SCORE * spread
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _relative(nodes: Sequence[MeasuredNode], pairs: Pairs, measure: str) -> dict[tuple[int, int], float]:
    """Return the speed of each pair relative to the median of the pairs that cross the same level; the inverse for
    latency."""
    speeds = {(a, b): bytes_s if measure == "bandwidth" else 1 / latency_s for a, b, bytes_s, latency_s in pairs}
    level = {(a, b): level_crossed(nodes[a].domains, nodes[b].domains) for a, b in speeds}
    usual = {
        each: median(speed for pair, speed in speeds.items() if level[pair] is each) for each in set(level.values())
    }
    return {pair: speed / usual[level[pair]] for pair, speed in speeds.items()}


def _best(relative: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Return node → its best link: one bad link does not count against a node, all bad links do."""
    best: dict[int, float] = {}
    for pair, speed in relative.items():
        for node in pair:
            best[node] = max(speed, best.get(node, 0.0))
    return best
