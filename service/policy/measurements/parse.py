"""Parse a probe's result, as reported by its ranks.

The tree of domains determines the level that a pair of nodes measures: the path between them leaves all domains that do
not contain both.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from regroup.service.domain.topology import DOMAIN_LEVELS, Level
from regroup.service.policy.measurements.anomalies import (
    Pairs,
    find_slow_links,
    find_slow_nodes,
    find_wrong_nodes,
    level_crossed,
)
from regroup.service.policy.measurements.results import (
    MeasuredBlock,
    MeasuredCollective,
    MeasuredLevel,
    MeasuredLoad,
    MeasuredMatmul,
    MeasuredNode,
    MeasuredStep,
    ProbeResult,
    Shape,
)
from regroup.service.policy.topology.device_islands import fabric_name, find_islands


def parse_probe_result(
    found: Mapping[str, Any],
    nodes: Sequence[tuple[str, tuple[str, ...]]],
    *,
    job_id: str,
    time_s: float,
) -> ProbeResult:
    """Parse the result of a probe (`workers/probe/run.py`).

    Args:
        nodes: permanent name and domains of each node, as the probe numbered them.

    Raises:
        KeyError, TypeError, ValueError, IndexError: the result is malformed.
    """
    by_node = tuple(
        MeasuredNode(
            nodes[at][0],
            len(each["ranks"]),
            nodes[at][1],
            dict(each["flops"]),
            float(each["memory_bytes_s"]),
            find_islands(each["inside"]),
            fabric_name(each["inside"]),
        )
        for at, each in enumerate(found["nodes"])
    )
    pairs = [(int(a), int(b), float(bytes_s), float(latency_s)) for a, b, bytes_s, latency_s in found["pairs"]]
    levels = _levels(by_node, pairs, found["rings"])
    return ProbeResult(
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
        tuple(MeasuredMatmul(str(dtype), int(side), float(flops)) for dtype, side, flops in found["matmuls"]),
        (*find_wrong_nodes(found, by_node), *find_slow_nodes(by_node, pairs), *find_slow_links(by_node, pairs)),
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


def _levels(nodes: Sequence[MeasuredNode], pairs: Pairs, rings: Mapping[str, Any]) -> tuple[MeasuredLevel, ...]:
    found: list[MeasuredLevel] = []
    inside = rings.get("node" if len(nodes) > 1 else "all")
    if inside is not None:
        bytes_s, latency_s = float(inside[1]), float(inside[2])
        found.append(MeasuredLevel(Level.DEVICE, bytes_s, latency_s, bytes_s, 0))
    for level in reversed([*DOMAIN_LEVELS, Level.NODE]):
        of_it = [pair for pair in pairs if level_crossed(nodes[pair[0]].domains, nodes[pair[1]].domains) is level]
        if of_it:
            speeds = [pair[2] for pair in of_it]
            found.append(
                MeasuredLevel(level, median(speeds), median(pair[3] for pair in of_it), min(speeds), len(of_it))
            )
    return tuple(found)
