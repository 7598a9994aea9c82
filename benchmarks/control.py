"""Cost of control at scale: a supervisor of 16,384 ranks, and a controller of 5,000 live jobs.

    python -m benchmarks.control --json PATH

In both parts a Unix socket replaces Ray's calls, so the cost of Ray itself is not in these figures: an actor of Ray
answers about 2,700 calls per second.

**One large job.** Real: the supervisor (`service/supervisor`) in a process of its own, and the sync of the controller.
Calls, reports and heartbeats follow the contract between supervisor and agents, with the product's codec and its rules
for reports. Simulated: 2,048 agents with eight ranks each in one other process. Their ranks exist only as numbers.

A trial kills a rank during steady training. `death_to_end_orders_s` ends when the last of all agents has its order to
kill the generation, and `death_to_form_orders_s` when the last one has its order to form the next one. The supervisor
is also killed with SIGKILL: `readopt_s` ends when its successor, a new process, has adopted the running generation.

**Many jobs.** Real: `regroup serve` in a process of its own, on PostgreSQL, with its API and metrics. Simulated:
the supervisors of 5,000 running jobs of eight ranks, each with the product's journal, event log and long poll. Each job
commits a step a second, a mirrored set every 12 s and a checkpoint every 10 min. Metrics are scraped every 15 s.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.control_plane import controller_load
from benchmarks.control_plane.controller_load import measure_controller
from benchmarks.control_plane.simulated_job import RANKS_PER_NODE, SimulatedJob
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.requests.postgres import create_database, postgres
from benchmarks.scheduler import exponent

SIZES = (256, 512, 1024, 2048)
"""Numbers of nodes."""
STEADY_S, SETTLE_S = 40.0, 15.0
"""Seconds of steady training that are measured, and seconds before them."""
_BETWEEN_S = 8.0
"""Seconds of steady training before each death. A new generation sends its first mirrors, to all nodes at once."""
_FIGURES = (
    "steady_cores", "death_to_end_orders_s", "death_to_form_orders_s", "memory_bytes", "readopt_s",
    "controller_cores", "pass_p95_s", "metrics_max_s", "leases_missed",
)  # fmt: skip
_SMOKE_SIZES = (2, 4)
_SEED = 20261128


async def measure_job(
    nodes: int, trials: int, steady_s: float = STEADY_S, settle_s: float = SETTLE_S
) -> dict[str, Any]:
    """Return the figures of one supervisor."""
    rng = random.Random(_SEED)
    with tempfile.TemporaryDirectory(prefix="regroup-control-") as folder:
        async with SimulatedJob(nodes, Path(folder)).running() as job:
            begun_s = time.monotonic()
            await job.wait_until_training()
            started_s = time.monotonic() - begun_s
            await asyncio.sleep(settle_s)
            cores = await _steady_cores(job, steady_s)
            between_s = min(_BETWEEN_S, settle_s)
            deaths = [await _kill_a_rank(job, rng, between_s) for _ in range(trials)]
            memory_bytes = job.peak_bytes()
            readopt_s = [await _restart(job) for _ in range(trials)]
            return {
                "nodes": nodes,
                "ranks": nodes * RANKS_PER_NODE,
                "start_s": started_s,
                "steady_cores": cores,
                **{name: statistics.median(death[name] for death in deaths) for name in deaths[0]},
                "memory_bytes": max(memory_bytes, job.peak_bytes()),
                "readopt_s": statistics.median(readopt_s),
                "deaths": deaths,
            }


async def _steady_cores(job: SimulatedJob, steady_s: float) -> float:
    begun_s, cpu_s = time.monotonic(), job.cpu_s()
    await asyncio.sleep(steady_s)
    return (job.cpu_s() - cpu_s) / (time.monotonic() - begun_s)


async def _kill_a_rank(job: SimulatedJob, rng: random.Random, between_s: float) -> Mapping[str, float]:
    """Kill a rank after some steady training, and wait until the next generation trains."""
    await asyncio.sleep(between_s)
    generation, cpu_s = job.status.generation, job.cpu_s()
    job.orders.clear()
    begun_s = time.monotonic()
    before = len(job.causes)
    rng.choice(list(job.agents.values())).kill_rank()
    await job.wait_until_training(generation)
    await asyncio.sleep(1.0)  # the cost includes the work after the first step
    causes = list(job.causes.values())[before:]
    assert len(causes) == 1, f"nothing but the killed rank fails: {causes}"
    orders = {kind: max(times_s.values()) - begun_s for kind, times_s in job.orders.items()}
    counts = {kind: len(times_s) for kind, times_s in job.orders.items()}
    assert counts == {"kill_ranks": job.nodes, "form_ranks": job.nodes}, f"each agent gets each order: {counts}"
    return {
        "death_to_end_orders_s": orders["kill_ranks"],
        "death_to_form_orders_s": orders["form_ranks"],
        "failure_cpu_s": job.cpu_s() - cpu_s,
    }


async def _restart(job: SimulatedJob) -> float:
    generation, step = job.status.generation, job.status.step
    seconds = await job.restart_supervisor()
    await job.wait_for(lambda: job.status.step > step + 1)
    assert job.status.generation == generation, "the running generation is adopted, not replaced"
    return seconds


def measure_jobs(sizes: Sequence[int], trials: int, *, is_smoke: bool) -> dict[str, Any]:
    """Return the figures of supervisors of different sizes."""
    times = {"steady_s": 2.0, "settle_s": 0.5} if is_smoke else {}
    jobs = [asyncio.run(measure_job(nodes, trials, **times)) for nodes in sizes]
    growth = exponent([(job["ranks"], job["failure_cpu_s"]) for job in jobs]) if len(jobs) > 1 else None
    return {f"job_{jobs[-1]['ranks']}_ranks": jobs[-1], "growth_exponent": growth, "sizes": jobs}


def measure_controllers(scale: controller_load.Scale) -> dict[str, Any]:
    """Return the figures of a controller on PostgreSQL."""
    with postgres() as server:
        found = asyncio.run(measure_controller(create_database(server, "live"), scale))
    return {f"jobs_{scale.jobs}": {**found, "database": "postgresql"}}


def main() -> int:
    """Measure, print the main figures and write the result."""
    end_tidily_on_sigterm()
    parser = arguments(__doc__ or "", trials=3)
    parser.add_argument("--nodes", type=_sizes, help="numbers of nodes, separated by commas")
    parser.add_argument("--part", choices=("job", "jobs"), help="one large job, or many jobs; default both")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test the benchmark itself")
    options = parser.parse_args()
    document: dict[str, Any] = {}
    if options.part != "jobs":
        sizes = options.nodes or (_SMOKE_SIZES if options.smoke else SIZES)
        document |= measure_jobs(sizes, options.trials, is_smoke=options.smoke)
        write_result(options.json, document)
    if options.part != "job":
        document |= measure_controllers(controller_load.SMOKE if options.smoke else controller_load.Scale())
        write_result(options.json, document)
    _print_figures(document)
    return 0


def _print_figures(document: Mapping[str, Any]) -> None:
    for name, found in document.items():
        if isinstance(found, dict):
            for figure in _FIGURES:
                if figure in found:
                    print(f"{name}.{figure}: {found[figure]:.3f}")
    if "growth_exponent" in document:
        print(f"growth_exponent: {document['growth_exponent']}")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(each) for each in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error


if __name__ == "__main__":
    sys.exit(main())
