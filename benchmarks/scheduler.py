"""What a look at the queue costs on large clusters, and a week of one.

    python -m benchmarks.scheduler --json PATH

Pure code, one core, no cluster: the decisions that the controller takes, on made-up nodes and jobs. Seeds are fixed
here. A look is measured with 95 % of the devices held and more jobs waiting than can start; sizes are scaled together
(nodes, jobs that run, jobs that wait) for the exponent. What a look costs depends on which jobs happen to wait, and on
a small cluster one large one decides: a size is the mean of several scenes. The week has the published failure rate
(`service/simulator/traces.py`).
"""

import importlib
import importlib.util
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.report.output import arguments, write_result
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Demand, Placement, place
from regroup.service.policy.scheduling.decide import Admission, decide
from regroup.service.policy.scheduling.entries import Priority, RunningJob, Size, WaitingJob
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.simulator.simulator import simulate
from regroup.service.simulator.traces import ClusterPart, failures, jobs, nodes_of

SEED = 20261122
SCENES = 5
"""For each size."""
LOAD = 0.95
SIZES = (1250, 2500, 5000, 10_000)
_DEVICES = 8
_PROJECTS = 20
_WEEK_S = 7 * 86400.0
_REPAIR_S = 4 * 3600.0
_QUALITY = "benchmarks.placement.placement_quality"

Scene = tuple[list[WaitingJob], list[Node], list[RunningJob], dict[str, Quota]]


def scene(nodes: int, waiting: int, load: float = LOAD, seed: int = SEED) -> Scene:
    """A loaded cluster: jobs fill nodes one after the other, and more wait."""
    rng = random.Random(seed)
    cluster = {node.id: node for node in nodes_of(ClusterPart(nodes=nodes, nodes_per_domain=8, nodes_per_zone=256))}
    free = dict.fromkeys(cluster, _DEVICES)
    running: list[RunningJob] = []
    left, order = int(load * nodes * _DEVICES), iter(cluster)
    at = next(order)
    while left > 0:
        ranks, seats = min(left, _ranks(rng)), list[tuple[str, int]]()
        left, missing = left - ranks, ranks
        while missing:
            at = at if free[at] else next(order)
            seats.append((at, min(missing, free[at])))
            free[at] -= seats[-1][1]
            missing -= seats[-1][1]
        name = f"r{len(running)}"
        running.append(
            RunningJob(
                name, name, _demand(ranks), tuple(seats), project=_project(rng), priority=rng.choice(list(Priority)),
                allocated_at_s=-rng.uniform(0, 1e5), ends_s=rng.uniform(0, 1e5),
            )
        )  # fmt: skip
    taken = [
        replace(node, free_gpus=free[node.id], free_cpus=node.cpus - 4 * (_DEVICES - free[node.id]))
        for node in cluster.values()
    ]
    return [_waiting(f"q{number}", rng) for number in range(waiting)], taken, running, _quotas(nodes)


def look_s(nodes: int, waiting: int, trials: int) -> Mapping[str, Any]:
    """Seconds of a look, the mean of all scenes, and what each of them came to."""
    looks: list[Mapping[str, Any]] = []
    for seed in range(SEED, SEED + SCENES):
        shown = scene(nodes, waiting, seed=seed)
        decisions, seconds = timed(lambda shown=shown: decide(*shown, now_s=0.0), trials)
        turns = sum(isinstance(each, Admission) for each in decisions)
        looks.append({"seed": seed, "running": len(shown[2]), "turns": turns, "s": seconds})
    mean_s = statistics.mean(look["s"] for look in looks)
    return {"nodes": nodes, "waiting": waiting, "s": mean_s, "scenes": looks}


def place_s(ranks: int, nodes: int, trials: int) -> float:
    """Median seconds of placing one job of so many GPUs, tp 8, on a cluster half of which is free."""
    _, there, _, _ = scene(nodes, 0, load=0.5)
    demand = Demand(ranks, _DEVICES, "cuda", 4)
    outcome, seconds = timed(lambda: place(demand, there), trials)
    assert isinstance(outcome, Placement), outcome
    return seconds


def week(gpus: int) -> Mapping[str, Any]:
    """Seconds that a simulated week takes, and what it came to."""
    rng, nodes = random.Random(SEED), nodes_of(ClusterPart(nodes=gpus // _DEVICES, nodes_per_domain=8))
    arrivals, outages = jobs(gpus, _WEEK_S, 0.9, rng), failures(nodes, _WEEK_S, _REPAIR_S, rng)
    begun = time.perf_counter()
    report = simulate(nodes, arrivals, outages, until_s=_WEEK_S)
    return {"s": time.perf_counter() - begun, "report": asdict(report)}


def timed(work: Callable[[], Any], trials: int) -> tuple[Any, float]:
    """What it returns, and the median of its seconds."""
    seconds: list[float] = []
    outcome = None
    for _ in range(trials):
        begun = time.perf_counter()
        outcome = work()
        seconds.append(time.perf_counter() - begun)
    return outcome, statistics.median(seconds)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Of the power of n that seconds grow with: the slope of a line through the logarithms."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(seconds) for _, seconds in points]
    return statistics.linear_regression(xs, ys).slope


def quality() -> Mapping[str, Any]:
    """Of placements, from the benchmark of that."""
    if importlib.util.find_spec(_QUALITY) is None:
        return {}
    return importlib.import_module(_QUALITY).measure()


def _ranks(rng: random.Random) -> int:
    return rng.choice([1, 2, 4, 8, 8, 16, 64, 256])


def _project(rng: random.Random) -> str:
    return f"p{rng.randrange(_PROJECTS)}"


def _demand(ranks: int) -> Demand:
    return Demand(ranks, 1, "cuda", 4)


def _waiting(name: str, rng: random.Random) -> WaitingJob:
    ranks = _ranks(rng)
    size = Size(Layout(dp_shard=ranks), _demand(ranks))
    return WaitingJob(
        name, name, (size,), project=_project(rng), priority=rng.choice(list(Priority)),
        queued_s=-rng.uniform(0, 5e4), max_duration_s=rng.choice([None, rng.uniform(10, 1e5)]),
    )  # fmt: skip


def _quotas(nodes: int) -> dict[str, Quota]:
    each = nodes * _DEVICES // (2 * _PROJECTS)
    return {f"p{number}": Quota(guaranteed=each, weight=1.0 + number % 3) for number in range(_PROJECTS)}


def main() -> int:
    """Measure, print, write."""
    options = arguments(__doc__ or "", trials=5).parse_args()
    looks = [look_s(nodes, nodes // 2, options.trials) for nodes in SIZES]
    simulated = week(16_384)
    document = {
        "cycle_10000_nodes_5000_jobs_s": looks[-1]["s"],
        "place_4096_gpus_s": place_s(4096, 10_000, options.trials),
        "growth_exponent": exponent([(look["nodes"], look["s"]) for look in looks]),
        "simulated_week_16384_gpus_s": simulated["s"],
        "quality": quality(),
        "looks": looks,
        "week": simulated["report"],
    }
    for name in (
        "cycle_10000_nodes_5000_jobs_s",
        "place_4096_gpus_s",
        "growth_exponent",
        "simulated_week_16384_gpus_s",
    ):
        print(f"{name}: {document[name]:.3f}")
    write_result(options.json, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
