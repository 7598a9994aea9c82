"""Quality of placements: compared with the optimum on small clusters, and with other strategies on a large cluster.

    python -m benchmarks.placement.placement_quality --json PATH

The other strategies are Ray's PACK, random placement and best-fit. The benchmark runs no jobs. It compares the
predicted communication time of a step and the leftover devices of nodes. The prediction is that of
`service/policy/placement/communication_cost.py`, computed rank by rank (`spelled_out`). Seeds, trace, layouts and
the model of PACK are fixed below.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.placement.placement_model import Spot, model_of, spelled_out, spots_of
from benchmarks.placement.placement_optimum import gaps
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Level, Node
from regroup.service.policy.placement.link_speeds import GPU_LINKS, Links, LinkSpeed
from regroup.service.policy.placement.place import Demand, NodeIndex, Placement, place
from regroup.service.policy.placement.traffic import TrainingWork, axes

SEED = 20261122
_DEVICES = 8
_RACKS, _NODES_IN_RACK, _RACKS_IN_BLOCK = 16, 16, 4
LOAD = 0.7
JOBS = 1200
"""Number of jobs in the trace. The first jobs are a warm-up and do not count."""
_WARM_UP = 300
_SEEDS = 16
"""Number of traces for the comparison of leftover devices with best-fit. In one trace, noise hides the difference."""


@dataclass(frozen=True)
class Kind:
    """Jobs of one size in the trace."""

    layout: Layout
    work: TrainingWork
    weight: float
    """Relative frequency of these jobs."""
    mean_s: float
    """Mean run time."""


KINDS = (
    Kind(Layout(), model_of(0.3, 24, 1024, micro_batches=8), 24, 1),
    Kind(Layout(dp_replicate=2), model_of(0.3, 24, 1024, micro_batches=8), 12, 1),
    Kind(Layout(dp_shard=4), model_of(1, 24, 2048, micro_batches=4), 14, 2),
    Kind(Layout(dp_shard=8), model_of(3, 32, 2560, micro_batches=4), 18, 3),
    Kind(Layout(dp_shard=12), model_of(3, 32, 2560, micro_batches=2), 4, 3),
    Kind(Layout(tp=2, dp_shard=8), model_of(8, 32, 4096, micro_batches=4), 10, 5),
    Kind(Layout(dp_shard=32), model_of(8, 32, 4096, micro_batches=2), 7, 6),
    Kind(Layout(tp=4, pp=2, dp_shard=6), model_of(13, 40, 5120, micro_batches=8), 3, 6),
    Kind(Layout(tp=8, dp_shard=8), model_of(34, 48, 8192, micro_batches=4), 4, 8),
    Kind(Layout(tp=8, pp=2, dp_shard=8), model_of(70, 80, 8192, micro_batches=8, recomputes=True), 2.5, 10),
    Kind(Layout(tp=8, pp=4, dp_shard=8), model_of(70, 80, 8192, micro_batches=16), 1.2, 12),
    Kind(Layout(tp=8, pp=4, dp_shard=4, dp_replicate=4), model_of(70, 80, 8192, micro_batches=8), 0.5, 14),
)
"""Many jobs are small. A few use most devices, as in public traces (Philly: Jeon et al. 2019, Acme: Hu et al. 2024)."""


@dataclass(frozen=True)
class Job:
    """One job of the trace."""

    number: int
    demand: Demand
    runs_s: float


# ---------------------------------------------------------------- a large cluster under load


def cluster() -> list[Node]:
    """Return nodes with 2,048 devices in total, in three tiers: blocks, racks, nodes."""
    nodes = list[Node]()
    for rack in range(_RACKS):
        for at in range(_NODES_IN_RACK):
            name = f"r{rack:02}n{at:02}"
            where = ("", f"b{rack // _RACKS_IN_BLOCK}", f"r{rack:02}", "")
            nodes.append(Node(name, name, "", cpus=96, gpus=8, free_cpus=96, free_gpus=8, domains=where))
    return nodes


def trace(seed: int = SEED) -> list[Job]:
    """Return the jobs in the order of arrival."""
    chance = random.Random(seed)
    kinds = chance.choices(KINDS, [kind.weight for kind in KINDS], k=JOBS)
    return [Job(number, _demand(kind), chance.expovariate(1 / kind.mean_s)) for number, kind in enumerate(kinds)]


def _demand(kind: Kind) -> Demand:
    layout = kind.layout
    return Demand(layout.world_size, layout.tp, "cuda", 1, axes=axes(layout, kind.work))


Seats = list[tuple[int, int]]
"""Pairs (node, number of ranks), in the order of ranks."""
Arm = Callable[[Demand, Sequence[int], random.Random], "list[Spot] | None"]


@dataclass
class Run:
    """Result of one strategy on the trace."""

    communication_s: dict[int, float]
    """Predicted communication time of a step, by job number."""
    stranded: list[float]
    """Fraction of the free devices that are on partly used nodes, after each arrival of a job."""
    whole_racks: list[int]
    """Number of unused racks, after each arrival of a job."""
    refused: int = 0
    """Number of jobs without a placement although enough devices were free."""


def run(arm: str, jobs: Sequence[Job], seed: int = SEED, links: Links = GPU_LINKS) -> Run:
    """Run the trace with one strategy. A job arrives as soon as the load including that job is at most `LOAD`."""
    nodes = cluster()
    spots = [Spot(at, node.domains) for at, node in enumerate(nodes)]
    chance, placing = random.Random(seed + 1), ARMS[arm](nodes, spots, links)
    free = [_DEVICES] * len(nodes)
    running, now_s, result = list[tuple[float, Counter[int]]](), 0.0, Run({}, [], [])
    for job in jobs:
        while sum(free) - job.demand.ranks < (1 - LOAD) * len(nodes) * _DEVICES and running:
            running.sort(key=lambda item: item[0])
            now_s, ended = running.pop(0)
            for at, count in ended.items():
                free[at] += count
        placed = placing(job.demand, free, chance)
        if placed is None:
            result.refused += 1
            continue
        taken = Counter(spot.node for spot in placed)
        for at, count in taken.items():
            free[at] -= count
            assert free[at] >= 0, "a device was allocated twice"
        running.append((now_s + job.runs_s, taken))
        if job.number >= _WARM_UP:
            result.communication_s[job.number] = spelled_out(job.demand.axes, placed, links)
            result.stranded.append(sum(each for each in free if each < _DEVICES) / sum(free))
            racks = [free[at : at + _NODES_IN_RACK] for at in range(0, len(free), _NODES_IN_RACK)]
            result.whole_racks.append(sum(min(rack) == _DEVICES for rack in racks))
    return result


def _ours(nodes: Sequence[Node], spots: Sequence[Spot], links: Links) -> Arm:
    index = {node.id: at for at, node in enumerate(nodes)}
    domains = [node.domains for node in nodes]

    def placing(demand: Demand, free: Sequence[int], chance: random.Random) -> list[Spot] | None:
        site = NodeIndex(replace(node, free_gpus=each) for node, each in zip(nodes, free, strict=True))
        placed = place(demand, site, links)
        return spots_of(placed, index, domains) if isinstance(placed, Placement) else None

    return placing


def _pack(nodes: Sequence[Node], spots: Sequence[Spot], links: Links) -> Arm:
    ids = random.Random(SEED).sample(range(len(nodes)), len(nodes))

    def placing(demand: Demand, free: Sequence[int], chance: random.Random) -> list[Spot] | None:
        left, placed = demand.ranks, list[Spot]()
        # Every node has enough cores: the share of devices decides, then the order of IDs.
        for at in sorted(range(len(nodes)), key=lambda at: (-free[at], ids[at])):
            count = min(left, free[at])
            placed += [spots[at]] * count
            left -= count
            if not left:
                return placed
        return None

    return placing


def _chance(nodes: Sequence[Node], spots: Sequence[Spot], links: Links) -> Arm:
    def placing(demand: Demand, free: Sequence[int], chance: random.Random) -> list[Spot] | None:
        devices = [at for at, each in enumerate(free) for _ in range(each)]
        return [spots[at] for at in chance.sample(devices, demand.ranks)]

    return placing


def _best_fit(nodes: Sequence[Node], spots: Sequence[Spot], links: Links) -> Arm:
    def placing(demand: Demand, free: Sequence[int], chance: random.Random) -> list[Spot] | None:
        capacity = {at: each // demand.segment * demand.segment for at, each in enumerate(free)}
        left, slots = demand.ranks, Seats()
        while left:
            enough = [at for at, each in capacity.items() if each >= left]
            at = (
                min(enough, key=lambda at: (capacity[at], at))
                if enough
                else max(capacity, key=lambda at: (capacity[at], -at))
            )
            if not capacity[at]:
                return None
            slots.append((at, min(left, capacity.pop(at))))
            left -= slots[-1][1]
        return [spots[at] for at, count in sorted(slots) for _ in range(count)]

    return placing


ARMS: Mapping[str, Callable[[Sequence[Node], Sequence[Spot], Links], Arm]] = {
    "regroup": _ours, "pack": _pack, "random": _chance, "best_fit": _best_fit,
}  # fmt: skip


# ---------------------------------------------------------------- the result


def measure(cases: int = 60) -> dict[str, Any]:
    """Return the figures `quality.*` of the scheduler benchmark, and their underlying data."""
    gap, jobs = gaps(cases, SEED), trace()
    runs = {arm: run(arm, jobs) for arm in ARMS}
    sizes = {job.number: job.demand.ranks for job in jobs}
    gains = {arm: _gain(runs["regroup"], runs[arm], sizes) for arm in ARMS if arm != "regroup"}
    return {
        "mean_gap_to_optimum": statistics.fmean(gap),
        "max_gap_to_optimum": max(gap),
        "small_clusters": len(gap),
        **{f"comm_gain_over_{arm}": gain["job_by_job"] for arm, gain in gains.items()},
        "stranded_over_best_fit": _over_best_fit(),
        "stranded": {arm: statistics.fmean(each.stranded) for arm, each in runs.items()},
        "whole_racks_free": {arm: statistics.fmean(each.whole_racks) for arm, each in runs.items()},
        "refused": {arm: each.refused for arm, each in runs.items()},
        "gains": gains,
        "gain_over_pack_by_oversubscription": {"7": gains["pack"]["job_by_job"], **_by_oversubscription(jobs, sizes)},
        "seed": SEED,
    }


def _over_best_fit() -> dict[str, float]:
    """Return the share of stranded devices minus that of best-fit, over other traces: mean and 95 % interval."""
    beyond = [
        statistics.fmean(ours.stranded) - statistics.fmean(theirs.stranded)
        for seed in range(SEED + 1, SEED + 1 + _SEEDS)
        for ours, theirs in [[run(arm, trace(seed), seed) for arm in ("regroup", "best_fit")]]
    ]
    mean, half = statistics.fmean(beyond), 1.96 * statistics.stdev(beyond) / math.sqrt(len(beyond))
    return {"traces": len(beyond), "mean": mean, "low": mean - half, "high": mean + half}


def _by_oversubscription(jobs: Sequence[Job], sizes: Mapping[int, int]) -> dict[str, float]:
    """Return the gain over PACK with faster links between blocks. At 1, they are as fast as those between racks."""
    found = dict[str, float]()
    for times in (3, 1):
        core = LinkSpeed(GPU_LINKS[Level.RACK].bytes_per_s / times, GPU_LINKS[Level.BLOCK].latency_s)
        links = {**GPU_LINKS, Level.BLOCK: core}
        ours, theirs = (run(arm, jobs, links=links) for arm in ("regroup", "pack"))
        found[str(times)] = _gain(ours, theirs, sizes)["job_by_job"]
    return found


def _gain(ours: Run, theirs: Run, sizes: Mapping[int, int]) -> dict[str, Any]:
    """Return how much longer the other strategy's jobs communicate: in total device-seconds, and job by job."""
    both = [number for number in ours.communication_s.keys() & theirs.communication_s.keys() if sizes[number] > 1]
    ratio = {number: theirs.communication_s[number] / ours.communication_s[number] for number in both}
    worst = min(ratio, key=lambda number: ratio[number])
    totals = [sum(run.communication_s[number] * sizes[number] for number in both) for run in (theirs, ours)]
    return {
        "of_totals": totals[0] / totals[1],
        "job_by_job": math.exp(statistics.fmean(math.log(each) for each in ratio.values())),
        "jobs": len(both),
        "jobs_we_lose": sum(each < 0.995 for each in ratio.values()),
        "worst": {"ranks": sizes[worst], "ratio": ratio[worst]},
        "by_ranks": {
            str(size): math.exp(statistics.fmean(math.log(ratio[number]) for number in both if sizes[number] == size))
            for size in sorted({sizes[number] for number in both})
        },
    }


def report(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report, including the cases in which regroup is worse."""
    mean, most = result["mean_gap_to_optimum"], result["max_gap_to_optimum"]
    count = result["small_clusters"]
    yield f"excess cost over the best placement, {count} small clusters: mean {mean:.2%}, maximum {most:.1%}"
    for arm, gain in result["gains"].items():
        yield (
            f"predicted communication, {arm} / regroup: {gain['job_by_job']:.2f} job by job, "
            f"{gain['of_totals']:.2f} of device-seconds; regroup is worse for {gain['jobs_we_lose']} of "
            f"{gain['jobs']} jobs; worst: {gain['worst']['ranks']} ranks ({gain['worst']['ratio']:.2f})"
        )
        yield "  by ranks: " + ", ".join(f"{size}: {ratio:.2f}" for size, ratio in gain["by_ranks"].items())
    for name, what in (("stranded", "free devices on partly used nodes"), ("whole_racks_free", "unused racks")):
        yield f"{what}: " + ", ".join(f"{arm} {each:.3f}" for arm, each in result[name].items())
    beyond = result["stranded_over_best_fit"]
    yield (
        f"stranded beyond best-fit, {beyond['traces']} other traces: "
        f"{beyond['mean']:+.5f} ({beyond['low']:+.5f} to {beyond['high']:+.5f})"
    )
    wider = result["gain_over_pack_by_oversubscription"].items()
    yield "PACK / regroup by oversubscription of the core: " + ", ".join(f"1:{n} {gain:.2f}" for n, gain in wider)
    yield "refused: " + ", ".join(f"{arm} {each}" for arm, each in result["refused"].items())


def main() -> None:
    """Measure, print the report, and write the result."""
    from benchmarks.report.output import arguments, write_result

    options = arguments("quality of placements", trials=60).parse_args()
    result = measure(options.trials)
    print(*report(result), sep="\n")
    write_result(options.json, {"quality": result})


if __name__ == "__main__":
    main()
