"""Cost of a scheduling pass over the queue of a large cluster, and of a simulated week.

    python -m benchmarks.scheduler --json PATH

The benchmark runs the controller's decisions on synthetic nodes and jobs: pure code, one core, no cluster. The seeds
are fixed in this file. A pass is measured with 95 % of the devices allocated and more jobs queued than can start. For
the exponent, nodes, running jobs and queued jobs scale together. The cost of a pass depends on the queued jobs. On a
small cluster, one large job can dominate it. So the figure for a size is the mean of several scenes. The simulated week
has the published failure rate (`service/simulator/traces.py`).
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
"""Number of scenes per size."""
LOAD = 0.95
SIZES = (1250, 2500, 5000, 10_000)
_DEVICES = 8
_PROJECTS = 20
_WEEK_S = 7 * 86400.0
_REPAIR_S = 4 * 3600.0
_QUALITY = "benchmarks.placement.placement_quality"

Scene = tuple[list[WaitingJob], list[Node], list[RunningJob], dict[str, Quota]]


def scene(nodes: int, waiting: int, load: float = LOAD, seed: int = SEED) -> Scene:
    """Return a loaded cluster: running jobs fill the nodes one after the other, and more jobs are queued."""
    rng = random.Random(seed)
    cluster = {node.id: node for node in nodes_of(ClusterPart(nodes=nodes, nodes_per_domain=8, nodes_per_zone=256))}
    free = dict.fromkeys(cluster, _DEVICES)
    running: list[RunningJob] = []
    left, order = int(load * nodes * _DEVICES), iter(cluster)
    at = next(order)
    while left > 0:
        ranks, slots = min(left, _ranks(rng)), list[tuple[str, int]]()
        left, missing = left - ranks, ranks
        while missing:
            at = at if free[at] else next(order)
            slots.append((at, min(missing, free[at])))
            free[at] -= slots[-1][1]
            missing -= slots[-1][1]
        name = f"r{len(running)}"
        running.append(
            RunningJob(
                name, name, _demand(ranks), tuple(slots), project=_project(rng), priority=rng.choice(list(Priority)),
                allocated_at_s=-rng.uniform(0, 1e5), ends_s=rng.uniform(0, 1e5),
            )
        )  # fmt: skip
    taken = [
        replace(node, free_gpus=free[node.id], free_cpus=node.cpus - 4 * (_DEVICES - free[node.id]))
        for node in cluster.values()
    ]
    return [_waiting(f"q{number}", rng) for number in range(waiting)], taken, running, _quotas(nodes)


def measure_cycle(nodes: int, waiting: int, trials: int) -> Mapping[str, Any]:
    """Return the seconds of a scheduling pass, as the mean over all scenes, and the result of each scene."""
    cycles: list[Mapping[str, Any]] = []
    for seed in range(SEED, SEED + SCENES):
        shown = scene(nodes, waiting, seed=seed)
        decisions, seconds = timed(lambda shown=shown: decide(*shown, now_s=0.0), trials)
        turns = sum(isinstance(each, Admission) for each in decisions)
        cycles.append({"seed": seed, "running": len(shown[2]), "turns": turns, "s": seconds})
    mean_s = statistics.mean(cycle["s"] for cycle in cycles)
    return {"nodes": nodes, "waiting": waiting, "s": mean_s, "scenes": cycles}


def place_s(ranks: int, nodes: int, trials: int) -> float:
    """Return the median seconds to place one job of `ranks` GPUs, with tp 8, on a cluster with half its GPUs free."""
    _, there, _, _ = scene(nodes, 0, load=0.5)
    demand = Demand(ranks, _DEVICES, "cuda", 4)
    outcome, seconds = timed(lambda: place(demand, there), trials)
    assert isinstance(outcome, Placement), outcome
    return seconds


def week(gpus: int) -> Mapping[str, Any]:
    """Simulate a week and return the run time of the simulation, in seconds, and its report."""
    rng, nodes = random.Random(SEED), nodes_of(ClusterPart(nodes=gpus // _DEVICES, nodes_per_domain=8))
    arrivals, outages = jobs(gpus, _WEEK_S, 0.9, rng), failures(nodes, _WEEK_S, _REPAIR_S, rng)
    begun = time.perf_counter()
    report = simulate(nodes, arrivals, outages, until_s=_WEEK_S)
    return {"s": time.perf_counter() - begun, "report": asdict(report)}


def timed(work: Callable[[], Any], trials: int) -> tuple[Any, float]:
    """Run `work` `trials` times and return its last result and the median duration in seconds."""
    seconds: list[float] = []
    outcome = None
    for _ in range(trials):
        begun = time.perf_counter()
        outcome = work()
        seconds.append(time.perf_counter() - begun)
    return outcome, statistics.median(seconds)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of n with which seconds grow: the slope of a line through the logarithms."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(seconds) for _, seconds in points]
    return statistics.linear_regression(xs, ys).slope


def quality() -> Mapping[str, Any]:
    """Return the placement quality from its own benchmark, or nothing if that benchmark is missing."""
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
    """Measure, print the main figures and write the result."""
    options = arguments(__doc__ or "", trials=5).parse_args()
    cycles = [measure_cycle(nodes, nodes // 2, options.trials) for nodes in SIZES]
    simulated = week(16_384)
    document = {
        "cycle_10000_nodes_5000_jobs_s": cycles[-1]["s"],
        "place_4096_gpus_s": place_s(4096, 10_000, options.trials),
        "growth_exponent": exponent([(cycle["nodes"], cycle["s"]) for cycle in cycles]),
        "simulated_week_16384_gpus_s": simulated["s"],
        "quality": quality(),
        "cycles": cycles,
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
