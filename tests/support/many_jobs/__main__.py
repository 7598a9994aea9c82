"""An accelerated life: many short jobs, cancels, failures and server restarts; nothing may grow with the history.

usage: python -m tests.support.many_jobs --json PATH [--jobs 2000] [--ray-jobs 300] [--ray-minutes 20] [--minutes 40]

Two servers run the jobs, one after the other. The first has a real local Ray of two nodes, where each job is one rank
with a script that ends at once: as many jobs as fit into the minutes. The second runs the other jobs with the real
control plane and a cluster in memory. The result has the series of both, and the exit code is 1 if a number grew or
a job did not end as it should.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report.output import end_tidily_on_sigterm, write_result
from tests.support.many_jobs.growth import Limit, Sample, find_database_growth, find_growth
from tests.support.many_jobs.resources import measure
from tests.support.many_jobs.services import RayService, ScriptedService, Service
from tests.support.many_jobs.short_jobs import ShortJobs

_SAMPLES = 60
"""Number of samples of one server."""
_RESTARTS_AT = (0.1, 0.2, 0.3, 0.4)
"""Shares of the jobs, or of the time, at which the server is killed and restarted. The last life is judged."""
_MIB = 2.0**20
_TIMES = Limit(noise=0.02, relative=0.5)
_OF_ALL = {"metrics_s": _TIMES, "pass_s": _TIMES, "server_descriptors": Limit(noise=6)}
_SCRIPTED_LIMITS = {**_OF_ALL, "server_bytes": Limit(per_job=4096, noise=4 * _MIB)}
_RAY_LIMITS = {
    **_OF_ALL,
    "server_bytes": Limit(per_job=40_000, noise=8 * _MIB),
    "gcs_server_bytes": Limit(per_job=40_000, noise=12 * _MIB),
    "raylet_bytes": Limit(per_job=20_000, noise=12 * _MIB),
    "ray_agents_bytes": Limit(per_job=40_000, noise=24 * _MIB),
    "gcs_server_descriptors": Limit(noise=12),
}
"""Ray itself keeps a record of each actor and placement group."""
_SCRIPTED_KINDS = {"ends": 70.0, "recovers": 10.0, "fails": 10.0, "waits": 5.0, "withdrawn": 5.0}
_RAY_KINDS = {"ends": 84.0, "fails": 4.0, "waits": 8.0, "withdrawn": 4.0}


@dataclass(frozen=True)
class Part:
    """The jobs of one server."""

    kinds: Mapping[str, float]
    limits: Mapping[str, Limit]
    at_once: int
    jobs: int
    until_s: float
    """Monotonic time after which no further jobs start."""


def run_part(service: Service, part: Part, folder: Path, seed: int, save: Callable[[dict[str, Any]], None]) -> int:
    """Run the jobs of one server, save its series after each sample, and return the number of jobs."""
    samples, problems, restarts = list[Sample](), list[str](), 0
    began_s, done = time.monotonic(), 0
    batch = max(2, part.jobs // _SAMPLES)
    with closing(ShortJobs(service, folder, part.kinds, part.at_once, seed)) as short_jobs:
        while done < part.jobs and time.monotonic() < part.until_s:
            share = max(done / part.jobs, (time.monotonic() - began_s) / max(1.0, part.until_s - began_s))
            restart = restarts < len(_RESTARTS_AT) and share >= _RESTARTS_AT[restarts]
            count = min(batch, part.jobs - done)
            problems += short_jobs.run(range(done, done + count), restart=restart)
            done, restarts = done + count, restarts + restart
            values = measure(service.state_dir, service.pid, service.url)
            samples.append(Sample(done, time.monotonic() - began_s, 1 + restarts, values))
            save(_to_json(samples, restarts, time.monotonic() - began_s, problems))
            print(f"{done} jobs, {restarts} restarts, {_summary(samples[-1])}", flush=True)
    problems += find_growth(samples, part.limits) + find_database_growth(samples)
    save(_to_json(samples, restarts, time.monotonic() - began_s, problems))
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both parts, and return the exit code."""
    given = _parser().parse_args(arguments)
    end_tidily_on_sigterm()
    began_s = time.monotonic()
    document: dict[str, Any] = {"seed": given.seed}

    def save_as(name: str) -> Callable[[dict[str, Any]], None]:
        def save(found: dict[str, Any]) -> None:
            document[name] = found
            write_result(given.json, document)

        return save

    done = 0
    with tempfile.TemporaryDirectory(prefix="many-jobs-") as scratch:
        root = Path(scratch)
        if given.ray_jobs:
            until_s = began_s + 60 * given.ray_minutes
            part = Part(_RAY_KINDS, _RAY_LIMITS, 4, min(given.ray_jobs, given.jobs), until_s)
            with RayService(_folder(root, "ray")) as ray_service:
                done += run_part(ray_service, part, root, given.seed, save_as("ray"))
        if given.jobs > done:
            part = Part(_SCRIPTED_KINDS, _SCRIPTED_LIMITS, 8, given.jobs - done, began_s + 60 * given.minutes)
            with ScriptedService(_folder(root, "scripted")) as scripted_service:
                done += run_part(scripted_service, part, root, given.seed, save_as("in_memory"))
    problems = [
        f"{name}: {each}" for name in ("ray", "in_memory") for each in document.get(name, {}).get("problems", ())
    ]
    if done < given.jobs:
        problems.append(f"only {done} of {given.jobs} jobs ran in {given.minutes} minutes")
    write_result(given.json, document | {"jobs": done, "s": time.monotonic() - began_s, "problems": problems})
    for problem in problems:
        print(f"FAILED {problem}", flush=True)
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="path of the result file")
    parser.add_argument("--jobs", type=int, default=2000, metavar="N", help="number of jobs, default 2000")
    parser.add_argument("--ray-jobs", type=int, default=300, metavar="N", help="largest number with Ray, default 300")
    parser.add_argument("--ray-minutes", type=float, default=20.0, metavar="M", help="time for them, default 20")
    parser.add_argument("--minutes", type=float, default=40.0, metavar="M", help="time for all, default 40")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kinds of jobs, default 1")
    return parser


def _folder(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name


def _to_json(samples: Sequence[Sample], restarts: int, seconds: float, problems: Sequence[str]) -> dict[str, Any]:
    return {
        "jobs": samples[-1].jobs if samples else 0,
        "restarts": restarts,
        "s": seconds,
        "problems": list(problems),
        "samples": [asdict(sample) for sample in samples],
    }


def _summary(sample: Sample) -> str:
    return ", ".join(
        f"{name} {value / _MIB:.1f} MiB" if name.endswith("_bytes") else f"{name} {value:.3g}"
        for name, value in sample.values.items()
    )


if __name__ == "__main__":
    sys.exit(main())
