"""Cost of the API: durable submits, reads of a long history, a scrape, followers, identity, and hostile bodies.

    python -m benchmarks.api --json PATH

Each part starts its own servers on loopback: the API of regroup without a cluster. Submits are compared with a bare
FastAPI route that inserts one row durably (`peers/bare_api.py`), in alternating rounds of the same run, on SQLite and
on PostgreSQL. Reads are compared between a database with 100 jobs and one with 100,000 jobs and 10 million metric
points.
"""

import asyncio
import contextlib
import functools
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.processes import cpu_seconds
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.requests.history import PROJECTS, fill, job_id
from benchmarks.requests.hostile import SEED, hostile_bodies
from benchmarks.requests.load import Answer, Connection, send_all
from benchmarks.requests.postgres import create_database, postgres

SPEC: dict[str, Any] = {
    "name": "gpt",
    "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10},
}
_CONNECTIONS = 8
_STEP = re.compile(rb'"step":\s?(\d+)')
_FOLLOW_S = 120.0


@dataclass(frozen=True)
class Scale:
    """Sizes of the parts."""

    submits: int = 400
    """Submits of one round."""
    jobs: int = 100_000
    points: int = 10_000_000
    reads: int = 1000
    """Reads of one round, for each kind of read."""
    followers: int = 1000
    steps: int = 50
    """Steps that each follower must receive."""
    idle_s: float = 20.0


SMOKE = Scale(submits=10, jobs=200, points=2000, reads=20, followers=20, steps=5, idle_s=1.0)
"""Sizes for a test of the benchmark itself."""


@dataclass(frozen=True)
class Process:
    """A server, and what it printed when it was ready."""

    process: "subprocess.Popen[str]"
    ready: dict[str, Any]

    async def command(self, line: str) -> dict[str, Any]:
        """Send one command; return its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(await asyncio.to_thread(self.process.stdout.readline))


@contextlib.asynccontextmanager
async def started(module: str, *options: str) -> AsyncIterator[Process]:
    """Start a server, and end it when the block ends."""
    command = [sys.executable, "-m", module, *options]
    process = await asyncio.to_thread(_start, command)
    assert process.stdout is not None and process.stdin is not None
    try:
        yield Process(process, json.loads(await asyncio.to_thread(process.stdout.readline)))
    finally:
        process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, 30)
        finally:
            process.kill()


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.asynccontextmanager
async def served(folder: Path, database: str) -> AsyncIterator[Process]:
    """Start the API of regroup."""
    state = folder / f"state-{time.monotonic_ns()}"
    async with started("benchmarks.requests.app_server", "--database", database, "--state-dir", str(state)) as server:
        yield server


async def measure_submits(folder: Path, ours: str, bare: str, trials: int, scale: Scale) -> dict[str, Any]:
    """Compare durable submits per second with the bare route, in alternating rounds."""
    rounds: list[dict[str, float]] = []
    async with served(folder, ours) as server, started("benchmarks.peers.bare_api", "--database", bare) as peer:
        for number in range(-1, trials):  # the first round warms both up
            names = [f"job-{number}-{each}" for each in range(scale.submits)]
            bodies = [json.dumps({**SPEC, "name": name}).encode() for name in names]
            found = {
                "submits_per_s": await _rate(server.ready["url"], server.ready["person"], "/v1/jobs", bodies),
                "bare_per_s": await _rate(peer.ready["url"], "", "/items", bodies),
            }
            if number >= 0:
                rounds.append(found)
    ratios = [each["submits_per_s"] / each["bare_per_s"] for each in rounds]
    return {
        "submit_ratio": statistics.median(ratios),
        "submits_per_s": statistics.median(each["submits_per_s"] for each in rounds),
        "bare_per_s": statistics.median(each["bare_per_s"] for each in rounds),
        "rounds": rounds,
    }


async def measure_reads(folder: Path, small: str, large: str, trials: int, scale: Scale) -> dict[str, Any]:
    """Compare the slowest percentile of reads between two histories, in alternating rounds, and time scrapes."""
    times: dict[str, dict[str, list[float]]] = {}
    scrapes: list[float] = []
    async with served(folder, small) as few, served(folder, large) as many:
        for number in range(-1, trials):
            for size, server, count in (("small", few, 100), ("large", many, scale.jobs)):
                found = await _read(server, count, scale.reads, random.Random(SEED + number))
                for kind, seconds in found.items() if number >= 0 else ():
                    times.setdefault(kind, {}).setdefault(size, []).extend(seconds)
            async with Connection(many.ready["url"], many.ready["owner"]) as connection:
                scrapes.append((await _get(connection, "/metrics")).seconds)
    p99 = {kind: {size: _p99(found) for size, found in sizes.items()} for kind, sizes in times.items()}
    return {
        "get_p99_growth": max(each["large"] / each["small"] for each in p99.values()),
        "metrics_100000_jobs_s": statistics.median(scrapes[1:] or scrapes),
        "reads": {"p99_s": p99, "scrapes_s": scrapes, "jobs": scale.jobs, "points": scale.points},
    }


async def measure_followers(folder: Path, scale: Scale) -> dict[str, Any]:
    """Follow one job with many streams; return the steps that were lost, and the idle cost of the server."""
    async with served(folder, f"sqlite:///{folder / 'followers.db'}") as server:
        url, owner = server.ready["url"], server.ready["owner"]
        (answer, *_), _ = await send_all(url, owner, "/v1/jobs", [json.dumps(SPEC).encode()], 1)
        job = json.loads(answer.body)["id"]
        await server.command(f"run {job}")
        async with contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(Connection(url, owner)) for _ in range(scale.followers)]
            readers = [await each.follow(f"/v1/jobs/{job}/steps?follow=true") for each in connections]
            receiving = [asyncio.create_task(_receive(reader, scale.steps)) for reader in readers]
            await server.command(f"steps {job} {scale.steps} 0.1")
            expected = list(range(1, scale.steps + 1))
            received = await asyncio.gather(*receiving)
            before = cpu_seconds([server.process.pid])
            await asyncio.sleep(scale.idle_s)
            idle = (cpu_seconds([server.process.pid]) - before) / scale.idle_s
    lost = sum(len(expected) - len(set(steps) & set(expected)) for steps in received)
    disordered = sum(steps != sorted(steps) for steps in received)
    return {"lost": lost, "disordered": disordered, "idle_cores": idle, "followers": scale.followers}


async def measure_identity(folder: Path, scale: Scale) -> float:
    """Return the part of a request's time in the server that finds out who sends it."""
    async with served(folder, f"sqlite:///{folder / 'identity.db'}") as server:
        url, person = server.ready["url"], server.ready["person"]
        (answer, *_), _ = await send_all(url, person, "/v1/jobs", [json.dumps(SPEC).encode()], 1)
        job = json.loads(answer.body)["id"]
        async with Connection(url, person) as connection:
            await _get(connection, f"/v1/jobs/{job}")
            await server.command("identity")
            for _ in range(scale.reads):
                await _get(connection, f"/v1/jobs/{job}")
        found = await server.command("identity")
    return found["identification_s"] / found["requests_s"]


async def measure_hostile(folder: Path) -> dict[str, Any]:
    """Return the times of hostile bodies, one after the other."""
    times: list[float] = []
    async with served(folder, f"sqlite:///{folder / 'hostile.db'}") as server:
        for body in hostile_bodies(SPEC):
            async with Connection(server.ready["url"], server.ready["owner"]) as connection:
                answer = await connection.send("POST", "/v1/spec/validate", body)
                assert answer.status < 500, (answer.status, body[:200])
                times.append(answer.seconds)
    return {"p99_s": _p99(times), "slowest_s": max(times), "count": len(times)}


async def measure(trials: int, scale: Scale, write: Callable[[dict[str, Any]], None]) -> None:
    """Run all parts; write what is known after each of them."""
    with tempfile.TemporaryDirectory(prefix="regroup-bench-api-") as name, postgres() as server:
        folder = Path(name)
        result: dict[str, Any] = {}
        print("submits on SQLite", flush=True)
        lite = f"sqlite:///{folder / 'submits.db'}", f"sqlite+aiosqlite:///{folder / 'bare.db'}"
        result["sqlite"] = await measure_submits(folder, *lite, trials, scale)
        write(result)
        print("submits on PostgreSQL", flush=True)
        ours, bare = create_database(server, "submits"), create_database(server, "bare")
        result["postgresql"] = await measure_submits(folder, ours, bare, trials, scale)
        write(result)
        print(f"reads of {scale.jobs:,} jobs and {scale.points:,} metric points", flush=True)
        small, large = folder / "small.db", folder / "large.db"
        await fill(f"sqlite+aiosqlite:///{small}", SPEC, 100, 10_000)
        await fill(f"sqlite+aiosqlite:///{large}", SPEC, scale.jobs, scale.points)
        result |= await measure_reads(folder, f"sqlite:///{small}", f"sqlite:///{large}", trials, scale)
        write(result)
        print(f"{scale.followers:,} followers", flush=True)
        result["followers_1000"] = await measure_followers(folder, scale)
        result["identity_cost"] = await measure_identity(folder, scale)
        write(result)
        print("hostile bodies", flush=True)
        result["hostile_bodies"] = await measure_hostile(folder)
        result["hostile_body_p99_s"] = result["hostile_bodies"]["p99_s"]
        write(result)


async def _rate(url: str, token: str, path: str, bodies: Sequence[bytes]) -> float:
    answers, seconds = await send_all(url, token, path, bodies, _CONNECTIONS)
    wrong = [answer for answer in answers if answer.status != 201]
    assert not wrong, wrong[0]
    return len(answers) / seconds


async def _read(server: Process, jobs: int, count: int, rng: random.Random) -> dict[str, list[float]]:
    """Return the times of single jobs and of pages of lists."""
    paths = {
        "get": [f"/v1/jobs/{job_id(rng.randrange(jobs))}" for _ in range(count)],
        "list": ["/v1/jobs?page_size=50" for _ in range(count)],
        "list of a project": [f"/v1/jobs?page_size=50&project=p{rng.randrange(PROJECTS)}" for _ in range(count)],
        "list of a state": ["/v1/jobs?page_size=50&state=FAILED" for _ in range(count)],
    }
    async with Connection(server.ready["url"], server.ready["person"]) as connection:
        return {kind: [(await _get(connection, path)).seconds for path in each] for kind, each in paths.items()}


async def _get(connection: Connection, path: str) -> Answer:
    answer = await connection.send("GET", path)
    assert answer.status == 200, (path, answer.status, answer.body[:300])
    return answer


async def _receive(reader: asyncio.StreamReader, count: int) -> list[int]:
    """Return the numbers of the first `count` steps of a stream."""
    found, text = list[int](), b""
    async with asyncio.timeout(_FOLLOW_S):
        while len(found) < count:
            line = await reader.readline()
            text = line if line.startswith(b"data:") else b""
            found += [int(number) for number in _STEP.findall(text)[:1]]
    return found


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "", trials=5)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test the benchmark itself")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65_536, hard), hard))
    write = functools.partial(write_result, given.json)
    asyncio.run(measure(given.trials, SMOKE if given.smoke else Scale(), write))


if __name__ == "__main__":
    main()
