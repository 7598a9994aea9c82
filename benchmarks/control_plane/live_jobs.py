"""Many running jobs: their supervisors, the server that follows them, and its database."""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.cluster import processes
from benchmarks.control_plane.frames import Peer
from benchmarks.control_plane.running_jobs import driver_url, running_jobs, store_jobs
from benchmarks.control_plane.simulated_supervisor import CHECKPOINT_EVERY_S, MIRROR_EVERY_S, SimulatedSupervisor
from regroup.service.local.api_token import VARIABLES, own_token
from regroup.service.store.schema.clock import DatabaseClock
from regroup.service.store.schema.tables import jobs, leases

STEP_S = 1.0
_SLICES_PER_S = 50
"""Supervisors commit their steps in this many groups, spread over time."""
_START_S = 180.0
_STOP_S = 60.0
_SEED = 20261128


@dataclass(frozen=True)
class LeaseReading:
    """The leader's lease at one moment."""

    token: int
    left_s: float
    """Seconds until it expires, by the clock of the database."""


class LiveJobs:
    """The surroundings of one controller."""

    def __init__(self, count: int, folder: Path, database: str) -> None:
        """Initialize. Everything but the database is stored below `folder`."""
        self.supervisors = {job.id: SimulatedSupervisor(job) for job in running_jobs(count)}
        self._folder, self._database = folder, database
        self._peer = Peer(self._answer)
        self._engine: AsyncEngine | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["LiveJobs"]:
        """Store the jobs, and run supervisors and server; end the server afterwards."""
        await store_jobs(self._database, [each.job for each in self.supervisors.values()])
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: self._peer, str(self._folder / "socket"))
        self._engine = create_async_engine(driver_url(self._database), pool_size=2)
        try:
            self._start_server()
            await self._wait_until_served()
            self._tasks += [loop.create_task(self._run_steps()), loop.create_task(self._emit_notes())]
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.to_thread(self._stop_server)
            await self._engine.dispose()
            server.close()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU time that the server has used."""
        return processes.cpu_seconds([self.pid])

    def database_cpu_s(self) -> float:
        """Return the CPU time of PostgreSQL; 0 on SQLite, which works inside the server."""
        found = processes.descendants([os.getpid()])
        return processes.cpu_seconds(pid for pid in found if "postgres" in processes.command_line(pid).split(":")[0])

    def passes_s(self) -> list[float]:
        """Return the durations of all passes so far."""
        return [float(line) for line in (self._folder / "passes").read_text().split()]

    async def lease(self) -> LeaseReading:
        """Read the leader's lease."""
        query = sa.select(leases.c.token, leases.c.expires_at, DatabaseClock().label("now"))
        assert self._engine is not None
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one()
        return LeaseReading(int(row.token), float(row.expires_at) - float(row.now))

    async def stored_steps(self) -> int:
        """Return the number of step rows of all jobs in the database."""
        return await self._read(sa.select(sa.func.sum(jobs.c.step_rows)))

    async def silent_jobs(self) -> int:
        """Return the number of jobs with a condition that their supervisor does not respond."""
        found = sa.cast(jobs.c.conditions, sa.Text).contains("SupervisorResponsive")
        return await self._read(sa.select(sa.func.count()).select_from(jobs).where(found))

    async def scrape(self) -> tuple[float, int]:
        """Read /metrics; return seconds and bytes."""
        return await asyncio.to_thread(self._scrape)

    # ------------------------------------------------------------ the server

    def _start_server(self) -> None:
        state = self._folder / "state"
        state.mkdir(mode=0o700)
        module = "benchmarks.control_plane.controller_process"
        inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        settings = {
            "REGROUP_STATE_DIR": str(state), "REGROUP_DATABASE_URL": self._database, "REGROUP_PORT": "0",
            "REGROUP_RAY_ADDRESS": "simulated",
        }  # fmt: skip
        (self._folder / "passes").touch()
        paths = [str(self._folder / "socket"), str(len(self.supervisors)), str(self._folder / "passes")]
        with (self._folder / "server.log").open("wb") as log:
            command = [sys.executable, "-m", module, *paths]
            self._process = subprocess.Popen(command, env={**inherited, **settings}, stdout=log, stderr=log)

    async def _wait_until_served(self) -> None:
        """Wait until the server serves, and follows every job."""
        record, deadline_s = self._folder / "state" / "server.json", time.monotonic() + _START_S
        while not record.exists() or any(not each.times.count for each in self.supervisors.values()):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                log = (self._folder / "server.log").read_text(errors="replace")
                raise RuntimeError(f"the server did not follow all jobs in {_START_S:.0f} s: {log[-3000:]}")
            await asyncio.sleep(0.1)

    def _stop_server(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _scrape(self) -> tuple[float, int]:
        state = self._folder / "state"
        url = json.loads((state / "server.json").read_text())["url"]
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {own_token(state)}"})
        begun_s = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            size = len(answer.read())
        return time.perf_counter() - begun_s, size

    async def _read(self, query: sa.Select[Any]) -> int:
        assert self._engine is not None
        async with self._engine.connect() as connection:
            return int((await connection.execute(query)).scalar_one() or 0)

    # ------------------------------------------------------------ the supervisors

    async def _answer(self, kind: str, value: Any) -> Any:
        assert kind == "sync", f"the controller only syncs with jobs that run, but it calls {kind}"
        job_id, request = value
        return await self.supervisors[job_id].sync(request)

    async def _run_steps(self) -> None:
        """Commit a step of each job in every `STEP_S`, and its mirrors and checkpoints in their time."""
        found, slices = list(self.supervisors.values()), max(1, int(STEP_S * _SLICES_PER_S))
        begun_s, turn = time.monotonic(), 0
        while True:
            for number in range(turn % slices, len(found), slices):
                _advance(found[number], number)
            turn += 1
            await asyncio.sleep(max(0.0, begun_s + turn * STEP_S / slices - time.monotonic()))

    async def _emit_notes(self) -> None:
        """Let one supervisor at a time emit an event that must not wait: once a second."""
        rng, found = random.Random(_SEED), list(self.supervisors.values())
        while True:
            rng.choice(found).emit_note()
            await asyncio.sleep(1.0)


def _advance(supervisor: SimulatedSupervisor, number: int) -> None:
    supervisor.commit_step(STEP_S)
    steps = supervisor.step + number
    if steps % round(MIRROR_EVERY_S / STEP_S) == 0:
        supervisor.complete_mirror()
    if steps % round(CHECKPOINT_EVERY_S / STEP_S) == 0:
        supervisor.complete_checkpoint()
