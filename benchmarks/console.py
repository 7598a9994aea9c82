"""Cost of the console: its first load, the list of many jobs, the way of an event to an open page, and open pages.

    python -m benchmarks.console --json PATH

The server is the API of regroup without a cluster, as in `benchmarks.api`, on a PostgreSQL with 100,000 jobs and 10
million metric points. The pages are real ones in Chromium. The tasks of operators are those of `tests/console/tasks`.
"""

import asyncio
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.api import SPEC, Process, served
from benchmarks.browser.console_page import chromium, first_load, open_page, signed_in, violations
from benchmarks.cluster.processes import cpu_seconds
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.requests.history import fill
from benchmarks.requests.load import Connection, send_all
from benchmarks.requests.postgres import create_database, postgres

if TYPE_CHECKING:
    from playwright.async_api import Browser

PAGES = ("", "jobs", "submit", "compare", "cluster", "queue", "what-if", "reliability", "usage", "admin")
ADMIN_TABS = ("tokens", "members", "hooks", "audit", "sessions", "secrets", "server")
JOB_TABS = ("story", "curves", "why", "ranks", "logs", "layout", "data", "spec")
ROOT = Path(__file__).resolve().parents[1]
_EVENT_PAUSE_S = 0.4
_SETTLE_S = 5.0
_PAGES_OF_A_PERSON = 4
"""Open pages in each browser. Pages of one browser share a stream of changes."""
_WATCH = """names => {
  globalThis.seen = {};
  const look = () => {
    const text = document.body.innerText;
    for (const name of names) if (!(name in seen) && text.includes(name)) seen[name] = Date.now() / 1000;
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  setInterval(look, 20);
}"""
"""Script that stores when each text is first visible. A mutation reports it at once, the interval what it misses."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the parts."""

    jobs: int = 100_000
    points: int = 10_000_000
    loads: int = 20
    events: int = 50
    pages: int = 100
    idle_s: float = 30.0


SMOKE = Scale(jobs=300, points=3000, loads=3, events=3, pages=3, idle_s=1.0)
"""Sizes for a test of the benchmark itself."""


async def measure_list(browser: "Browser", server: Process, scale: Scale) -> dict[str, Any]:
    """Time from the address of the list to visible rows and a filter that has the focus."""
    url = server.ready["url"]
    times: list[float] = []
    async with signed_in(browser, url, server.ready["owner"]) as context:
        page = await context.new_page()
        for number in range(-1, scale.loads):  # the first load fills the cache of the browser
            await page.goto("about:blank")
            started_s = time.monotonic()
            await page.goto(f"{url}/console/jobs", wait_until="commit")
            await page.locator("tbody tr[aria-rowindex]").nth(10).wait_for()
            await page.keyboard.press("/")
            await page.locator("[data-filter]:focus").wait_for()
            if number >= 0:
                times.append(time.monotonic() - started_s)
        await page.locator("[data-filter]").fill("name:nightly-7")
        await page.get_by_text("nightly-7", exact=True).first.wait_for()
    return {"p95_s": _p95(times), "median_s": statistics.median(times), "times_s": times, "jobs": scale.jobs}


async def measure_events(browser: "Browser", server: Process, scale: Scale) -> dict[str, Any]:
    """Time from the answer to a submission to the visible row on an open page."""
    url, owner = server.ready["url"], server.ready["owner"]
    names = [f"arrives-{number:03}" for number in range(scale.events)]
    sent_s: dict[str, float] = {}
    async with signed_in(browser, url, owner) as context:
        page = await context.new_page()
        await page.goto(f"{url}/console/jobs")
        await page.locator("tbody tr[aria-rowindex]").first.wait_for()
        await page.evaluate(_WATCH, names)
        for name in names:
            await send_all(url, owner, "/v1/jobs", [json.dumps({**SPEC, "name": name}).encode()], 1)
            sent_s[name] = time.time()
            await asyncio.sleep(_EVENT_PAUSE_S)
        await asyncio.sleep(_SETTLE_S)
        seen_s: dict[str, float] = await page.evaluate("seen")
    times = [max(0.0, seen_s[name] - sent_s[name]) if name in seen_s else float("inf") for name in names]
    return {"p95_s": _p95(times), "median_s": statistics.median(times), "missed": len(names) - len(seen_s)}


async def measure_overview(server: Process, scale: Scale) -> dict[str, Any]:
    """Time of the overview after a change, and again without one. The first one sums the last days, once a minute."""
    url, owner = server.ready["url"], server.ready["owner"]
    times: dict[str, list[float]] = {"changed": [], "unchanged": []}
    async with Connection(url, owner) as connection:
        first = await connection.send("GET", "/v1/overview")
        for number in range(scale.loads):
            body = json.dumps({**SPEC, "name": f"changes-{number}"}).encode()
            await connection.send("POST", "/v1/jobs", body)
            for kind in times:
                answer = await connection.send("GET", "/v1/overview")
                assert answer.status == 200, answer.body[:300]
                times[kind].append(answer.seconds)
    return {"first_s": first.seconds, **{f"{kind}_p95_s": _p95(found) for kind, found in times.items()}}


async def measure_pages(browser: "Browser", server: Process, job: str, scale: Scale) -> dict[str, Any]:
    """Return what open pages cost the server: memory, and processor time while one event arrives each second."""
    url, pid = server.ready["url"], server.process.pid
    paths = [*PAGES, *(f"jobs/{job}/{tab}" for tab in JOB_TABS)]
    bytes_before = _memory_bytes(pid)
    without = await _cores(server, scale, 0)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(scale.pages):
            if number % _PAGES_OF_A_PERSON == 0:
                context = await stack.enter_async_context(signed_in(browser, url, server.ready["owner"]))
            await open_page(await context.new_page(), f"{url}/console/{paths[number % len(paths)]}")
        await asyncio.sleep(_SETTLE_S)
        cores = await _cores(server, scale, 1)
        grown = _memory_bytes(pid) - bytes_before
    return {"server_bytes": grown, "server_cores": cores - without, "pages": scale.pages, "cores_without": without}


async def _cores(server: Process, scale: Scale, round_number: int) -> float:
    """Return the cores that the server uses while a job is submitted each second."""
    url, owner, pid = server.ready["url"], server.ready["owner"], server.process.pid
    before, started_s = cpu_seconds([pid]), time.monotonic()
    for number in range(max(1, round(scale.idle_s))):
        body = json.dumps({**SPEC, "name": f"while-open-{round_number}-{number}"}).encode()
        await send_all(url, owner, "/v1/jobs", [body], 1)
        await asyncio.sleep(max(0.0, started_s + number + 1 - time.monotonic()))
    return (cpu_seconds([pid]) - before) / (time.monotonic() - started_s)


async def measure_accessibility(browser: "Browser", server: Process, job: str) -> dict[str, Any]:
    """Let axe check every page, with light and dark colours."""
    found: dict[str, list[str]] = {}
    paths = [*PAGES, *(f"admin/{tab}" for tab in ADMIN_TABS), *(f"jobs/{job}/{tab}" for tab in JOB_TABS)]
    url = server.ready["url"]
    async with signed_in(browser, url, server.ready["owner"]) as context:
        page = await context.new_page()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            for path in paths:
                await open_page(page, f"{url}/console/{path}")
                await page.locator(".state[role=status]").first.wait_for(state="detached")
                if wrong := await violations(page):
                    found[f"{path} {scheme}"] = wrong
    return {"violations": sum(map(len, found.values())), "pages": len(paths), "found": found}


def count_tasks() -> dict[str, Any]:
    """Do the tasks of operators in Chromium; return how many different ones were done."""
    with tempfile.TemporaryDirectory(prefix="regroup-bench-tasks-") as folder:
        report = Path(folder) / "tasks.json"
        command = [sys.executable, "-m", "pytest", "-q", "tests/console/tasks", "-p", "no:cacheprovider"]
        variables = {**os.environ, "REGROUP_TASK_REPORT": str(report)}
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(f"the tasks were not run: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        outcomes: dict[str, bool] = json.loads(report.read_text())
    return {"done": sum(outcomes.values()), "failed": sorted(name for name, passed in outcomes.items() if not passed)}


async def measure(scale: Scale, write: Callable[[dict[str, Any]], None], *, has_tasks: bool) -> None:
    """Run all parts; write what is known after each of them."""
    with tempfile.TemporaryDirectory(prefix="regroup-bench-console-") as name, postgres() as database:
        folder, result = Path(name), dict[str, Any]()
        print(f"filling PostgreSQL with {scale.jobs:,} jobs and {scale.points:,} metric points", flush=True)
        many = create_database(database, "console")
        await fill(many, SPEC, scale.jobs, scale.points, are_newest=True)
        async with served(folder, many) as server, chromium() as browser:
            url, owner = server.ready["url"], server.ready["owner"]
            async with signed_in(browser, url, owner) as context:
                print("first load", flush=True)
                load = await first_load(context, f"{url}/console/")
                result |= {"first_load_bytes_compressed": load.compressed_bytes, "first_load_requests": load.requests}
            write(result)
            print("list of jobs", flush=True)
            result["job_list"] = await measure_list(browser, server, scale)
            result["job_list_100000_p95_s"] = result["job_list"]["p95_s"]
            write(result)
            print("events", flush=True)
            result["event_to_page"] = await measure_events(browser, server, scale)
            result["event_to_page_p95_s"] = result["event_to_page"]["p95_s"]
            write(result)
            print("overview", flush=True)
            result["overview"] = await measure_overview(server, scale)
            result["overview_100000_jobs_p95_s"] = result["overview"]["changed_p95_s"]
            write(result)
            job = await _running_job(server)
            print(f"{scale.pages} open pages", flush=True)
            result["pages_100"] = await measure_pages(browser, server, job, scale)
            write(result)
            print("accessibility", flush=True)
            result["accessibility"] = await measure_accessibility(browser, server, job)
            write(result)
    if has_tasks:
        print("tasks of operators", flush=True)
        result["tasks"] = await asyncio.to_thread(count_tasks)
        write(result)


async def _running_job(server: Process) -> str:
    answers, _ = await send_all(
        server.ready["url"], server.ready["owner"], "/v1/jobs", [json.dumps({**SPEC, "name": "runs"}).encode()], 1
    )
    job = str(json.loads(answers[0].body)["id"])
    await server.command(f"run {job}")
    await server.command(f"steps {job} 50 0")
    return job


def _memory_bytes(pid: int) -> int:
    """Return the proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/smaps_rollup has no line `Pss:`")


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "", trials=1)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test the benchmark itself")
    parser.add_argument("--no-tasks", action="store_true", help="without the tasks of operators")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    write = functools.partial(write_result, given.json)
    asyncio.run(measure(SMOKE if given.smoke else Scale(), write, has_tasks=not given.no_tasks))


if __name__ == "__main__":
    main()
