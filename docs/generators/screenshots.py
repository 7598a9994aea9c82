"""Pictures of the console in docs/console, from a real run: a rank is killed, the job recovers, pages are shown.

Pictures of jobs, ranks and nodes are made while a second job trains and a third one waits. Run it with `make
screenshots`. It needs Chromium, as the tests of pages do.
"""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regroup.api.cli.demo.runner import plan, story_link
from regroup.api.client.client import Client
from regroup.api.client.discovery import connect
from regroup.service.local.api_token import own_token
from regroup.service.local.marked_processes import marked_environment, stop_marked
from tests.support.machines.browser import chromium_path

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "console"
MAX_BYTES = 200_000
STEPS, KILL_AT = 90, 45
LONG_STEPS, SHOWN_AT = 3000, 40
_START_S, _RUN_S = 120.0, 300.0
"""Limits for a busy machine; usually both together take less than a minute."""
SIZE: Any = {"width": 1280, "height": 800}


def main() -> None:
    """Start a server with two nodes, run the job with its incident, take the pictures, stop everything."""
    state = Path(tempfile.mkdtemp(prefix="regroup-screenshots-"))
    server = _serve(state)
    try:
        url = _url(state, server)
        with connect(url, token=own_token(state), patient=True) as client:
            job_id = _run_job(client)
            second_id = _start_jobs(client)
            ended = {
                "story": f"jobs/{job_id}/story?incident=1",
                "overview": "",
                "curves": f"jobs/{job_id}/curves",
                "why": f"jobs/{job_id}/why",
                "reliability": "reliability?window=1d",
            }
            running = {"jobs": "jobs", "ranks": f"jobs/{second_id}/ranks", "cluster": "cluster"}
            asyncio.run(_write_pictures(story_link(client, job_id), url, running | ended))
    finally:
        server.terminate()
        down = [sys.executable, "-m", "regroup.api.cli", "down", "--state-dir", str(state)]
        subprocess.run(down, check=False, timeout=60, capture_output=True)
        stop_marked(str(state), timeout_s=10.0)


def _serve(state: Path) -> "subprocess.Popen[bytes]":
    options = ["--local-nodes", "2", "--slots-per-node", "2", "--port", "0"]
    command = [sys.executable, "-m", "regroup.api.cli", "serve", "--state-dir", str(state), *options]
    with (state / "server.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=marked_environment(state))


def _url(state: Path, server: "subprocess.Popen[bytes]") -> str:
    address, deadline = state / "server.json", time.monotonic() + _START_S
    while not address.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the server did not start: see {state / 'server.log'}")
        time.sleep(0.2)
    return str(json.loads(address.read_text())["url"])


def _run_job(client: Client) -> str:
    """Run the job, and kill one of its ranks in the middle; return its id once it has ended."""
    spec = {**plan(STEPS).control, "name": "pretrain", "checkpoint": {"every_steps": 30}}
    job = client.submit(spec)
    deadline, is_killed = time.monotonic() + _RUN_S, False
    while not (found := client.get(job.id)).state.is_terminal:
        if time.monotonic() > deadline:
            raise SystemExit(f"job {job.id} is {found.state} at step {found.step} after {_RUN_S:.0f} s")
        if not is_killed and found.step >= KILL_AT:
            os.kill(next(each.pid for each in client.stacks(job.id) if each.rank == 1), signal.SIGKILL)
            is_killed = True
        time.sleep(0.2)
    if not client.incidents(job.id):
        raise SystemExit(f"job {job.id} had no incident: it ended {found.state} before rank 1 was killed")
    return job.id


def _start_jobs(client: Client) -> str:
    """Submit a job that trains for the time of the pictures, and one that waits for its devices; return the first."""
    control = plan(LONG_STEPS).control
    training = client.submit({**control, "name": "finetune", "checkpoint": {"every_steps": 60}})
    client.submit({**control, "name": "evaluate"})
    deadline = time.monotonic() + _RUN_S
    while (found := client.get(training.id)).step < SHOWN_AT:
        if found.state.is_terminal or time.monotonic() > deadline:
            raise SystemExit(f"job {training.id} is {found.state} at step {found.step}, before the pictures")
        time.sleep(0.2)
    return training.id


async def _write_pictures(link: str, url: str, pages: Mapping[str, str]) -> None:
    from playwright.async_api import async_playwright

    TARGET.mkdir(parents=True, exist_ok=True)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium_path())
        page = await browser.new_page(viewport=SIZE, color_scheme="light")
        await page.goto(link)
        await page.wait_for_url("**/console/**")
        for name, address in pages.items():
            await page.goto(f"{url}/console/{address}")
            await _settle(page)
            _write(await page.screenshot(), TARGET / f"{name}.png")
        await browser.close()


async def _settle(page: "Page") -> None:
    """Wait until the page has its title and nothing loads."""
    await page.locator("h1").first.wait_for()
    await page.locator(".state[role=status]").first.wait_for(state="detached")
    await page.evaluate("document.fonts.ready")


def _write(picture: bytes, path: Path) -> None:
    """Write a picture with at most 256 colours, as an optimized PNG."""
    from PIL import Image

    opened = Image.open(io.BytesIO(picture))
    opened.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes; at most {MAX_BYTES} are allowed")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
