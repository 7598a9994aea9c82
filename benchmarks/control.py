"""Cost of control at scale: a supervisor of 16,384 ranks, and a controller of 5,000 live jobs.

    python -m benchmarks.control --json PATH

Real: the supervisor (`service/supervisor`) in a process of its own, and the sync of the controller. Calls, reports and
heartbeats follow the contract between supervisor and agents, with the product's codec and its rules for reports.
Simulated: 2,048 agents with eight ranks each in one other process. Their ranks exist only as numbers. A Unix socket
replaces Ray's calls, so the cost of Ray itself is not in these figures: an actor of Ray answers about 2,700 calls per
second.

A trial kills a rank. `death_to_end_orders_s` ends when the last of all agents has its order to kill the generation, and
`death_to_form_orders_s` when the last one has its order to form the next one. The supervisor is also killed with
SIGKILL: `readopt_s` ends when its successor, a new process, has adopted the running generation.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.control_plane.simulated_job import RANKS_PER_NODE, SimulatedJob
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.scheduler import exponent

SIZES = (256, 512, 1024, 2048)
"""Numbers of nodes."""
STEADY_S, SETTLE_S = 40.0, 15.0
"""Seconds of steady training that are measured, and seconds before them."""
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
            deaths = [await _kill_a_rank(job, rng) for _ in range(trials)]
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


async def _kill_a_rank(job: SimulatedJob, rng: random.Random) -> Mapping[str, float]:
    """Kill a rank, and wait until the next generation trains."""
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


def main() -> int:
    """Measure, print the main figures and write the result."""
    end_tidily_on_sigterm()
    parser = arguments(__doc__ or "", trials=3)
    parser.add_argument("--nodes", type=_sizes, default=SIZES, help="numbers of nodes, separated by commas")
    options = parser.parse_args()
    jobs = [asyncio.run(measure_job(nodes, options.trials)) for nodes in options.nodes]
    largest = jobs[-1]
    document = {
        f"job_{largest['ranks']}_ranks": largest,
        "growth_exponent": exponent([(job["ranks"], job["failure_cpu_s"]) for job in jobs]) if len(jobs) > 1 else None,
        "sizes": jobs,
    }
    for name in ("steady_cores", "death_to_end_orders_s", "death_to_form_orders_s", "memory_bytes", "readopt_s"):
        print(f"{name}: {largest[name]:.3f}")
    print(f"growth_exponent: {document['growth_exponent']}")
    write_result(options.json, document)
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(each) for each in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error


if __name__ == "__main__":
    sys.exit(main())
