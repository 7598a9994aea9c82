"""Figures of a controller that follows many running jobs."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.control_plane.live_jobs import STEP_S, LeaseReading, LiveJobs
from benchmarks.trials.stats import percentile

_SCRAPE_EVERY_S = 15.0
"""As Prometheus does by default."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the part."""

    jobs: int = 5000
    settle_s: float = 180.0
    """Seconds from the moment at which the controller follows all jobs to the measurement: each job has reported its
    steps at the pace of so many jobs by then."""
    measured_s: float = 180.0


SMOKE = Scale(jobs=20, settle_s=1.0, measured_s=3.0)
"""Sizes for a test of the benchmark itself."""


@dataclass
class _Readings:
    leases: list[LeaseReading] = field(default_factory=list[LeaseReading])
    scrapes: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])


async def measure_controller(database: str, scale: Scale) -> dict[str, Any]:
    """Return the figures of one controller on an empty database."""
    with tempfile.TemporaryDirectory(prefix="regroup-control-") as folder:
        async with LiveJobs(scale.jobs, Path(folder), database).running() as live:
            await asyncio.sleep(scale.settle_s)
            return await _measure(live, scale)


async def _measure(live: LiveJobs, scale: Scale) -> dict[str, Any]:
    for supervisor in live.supervisors.values():
        supervisor.times.longest_gap_s, supervisor.times.notes_s = 0.0, []
    passes, syncs, stored = len(live.passes_s()), _syncs(live), await live.stored_steps()
    begun_s, cpu_s, database_cpu_s = time.monotonic(), live.cpu_s(), live.database_cpu_s()
    readings = await _observe(live, begun_s + scale.measured_s)
    seconds = time.monotonic() - begun_s
    cores, database_cores = (live.cpu_s() - cpu_s) / seconds, (live.database_cpu_s() - database_cpu_s) / seconds
    durations = live.passes_s()[passes:]
    notes = [each for supervisor in live.supervisors.values() for each in supervisor.times.notes_s]
    return {
        "jobs": scale.jobs,
        "step_s": STEP_S,
        "seconds": seconds,
        "controller_cores": cores,
        "database_cores": database_cores,
        "passes": len(durations),
        "pass_p50_s": statistics.median(durations),
        "pass_p95_s": percentile(durations, 95),
        "syncs_per_s": (_syncs(live) - syncs) / seconds,
        "steps_per_s": (await live.stored_steps() - stored) / seconds,
        "longest_time_without_sync_s": max(each.times.longest_gap_s for each in live.supervisors.values()),
        "note_stored_p95_s": percentile(notes, 95) if notes else None,
        "notes": len(notes),
        "metrics_p50_s": statistics.median(each[0] for each in readings.scrapes),
        "metrics_max_s": max(each[0] for each in readings.scrapes),
        "metrics_bytes": readings.scrapes[-1][1],
        "leases_missed": _missed(readings.leases),
        "least_left_of_lease_s": min(each.left_s for each in readings.leases),
        "silent_jobs": await live.silent_jobs(),
    }


async def _observe(live: LiveJobs, until_s: float) -> _Readings:
    """Read the lease each second, and scrape metrics as Prometheus does."""
    found, scrape_s = _Readings(), 0.0
    while (now_s := time.monotonic()) < until_s:
        found.leases.append(await live.lease())
        if now_s >= scrape_s:
            scrape_s = now_s + _SCRAPE_EVERY_S
            found.scrapes.append(await live.scrape())
        await asyncio.sleep(max(0.0, min(now_s + 1.0, until_s) - time.monotonic()))
    return found


def _syncs(live: LiveJobs) -> int:
    return sum(each.times.count for each in live.supervisors.values())


def _missed(found: Sequence[LeaseReading]) -> int:
    """Return how often the lease had expired, or belonged to another holder than at the start."""
    return sum(each.left_s <= 0 or each.token != found[0].token for each in found)
