"""The API of regroup without a cluster, as a process for load.

    python -m benchmarks.requests.app_server --database URL --state-dir DIR

It prints one JSON object when it serves: its URL, the owner's token, and a token of a person. Then it reads one command
from each line of standard input and answers with one line. `run JOB` reports that a job runs. `steps JOB N PAUSE_S`
reports N steps with a pause after each. `identity` returns the seconds in the identification of senders and in whole
requests since its last call.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.requests.idle_cluster import IdleCluster
from regroup.api.app import create_app
from regroup.api.web.authenticator import Authenticator
from regroup.api.web.connections import connection_class
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.local.api_token import ensure_token
from regroup.service.local.asgi_server import AsgiServer
from regroup.service.local.garbage_collector import freeze_started_objects
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.assembly.services import Services
from regroup.service.ports.cluster import Cluster
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.settings import Settings
from regroup.service.store.rows.identity_rows import IdentityRow, TokenRow
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

PERSON = "benchmark"
_LEASE_S = 3600.0
_PLACE = {"rank": 0, "node_id": "n0", "node_name": "a", "address": "127.0.0.1", "local_rank": 0, "device": 0}
_LAYOUT = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1}
_STEP = {
    "duration_s": 0.5, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 1, "learning_rate": 1e-3,
    "grad_norm": 1.0, "stall_s": 0.0,
}  # fmt: skip


@dataclass
class Stopwatch:
    """Seconds in the identification of senders, and in whole requests."""

    identification_s: float = 0.0
    requests_s: float = 0.0
    count: int = 0

    def wrap_identify(self, identify: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a function that measures the identification."""

        async def measured(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return await identify(*args, **kwargs)
            finally:
                self.identification_s += time.perf_counter() - began_s

        return measured

    def wrap_app(self, app: ASGIApp) -> ASGIApp:
        """Return an app that measures whole requests."""

        async def measured(scope: Scope, receive: Receive, send: Send) -> None:
            began_s = time.perf_counter()
            try:
                await app(scope, receive, send)
            finally:
                if scope["type"] == "http":
                    self.requests_s += time.perf_counter() - began_s
                    self.count += 1

        return measured

    def reset(self) -> dict[str, float]:
        """Return the times since the last call."""
        found = {"identification_s": self.identification_s, "requests_s": self.requests_s, "count": self.count}
        self.identification_s = self.requests_s = 0.0
        self.count = 0
        return found


@dataclass
class Supervisor:
    """Reports of the supervisors of jobs."""

    store: Store
    lease: Lease
    sent: dict[str, int] = field(default_factory=dict[str, int])
    """Job → sequence number of its last event."""

    async def run(self, job_id: str) -> None:
        """Report that a queued job runs."""
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
            (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        ):
            await self.store.apply(self.lease, check_transition(job_id, source, target, reason), now=time.time())
        formed = {
            "number": 1, "layout": _LAYOUT, "world_size": 1, "ranks": [_PLACE], "start_step": 0,
            "restore": {"source": "none"}, "cause": "start",
        }  # fmt: skip
        running = {"state": "RUNNING", "reason": "first_step", "message": ""}
        await self._report(job_id, ("generation", formed), ("state", running))

    async def steps(self, job_id: str, count: int, pause_s: float) -> None:
        """Report steps that a follower must receive in order."""
        done = (await self.store.job(job_id)).step
        for number in range(done + 1, done + count + 1):
            row = {**_STEP, "step": number, "generation": 1, "time_s": time.time()}
            await self._report(job_id, ("step", row))
            await asyncio.sleep(pause_s)

    async def _report(self, job_id: str, *reports: tuple[str, dict[str, Any]]) -> None:
        events: list[SupervisorEvent] = []
        for kind, data in reports:
            number = self.sent[job_id] = self.sent.get(job_id, 0) + 1
            events.append(SupervisorEvent(number, f"{kind}:{number}", kind, 1, time.time(), data))
        await self.store.ingest(self.lease, job_id, "boot", events, {})


async def serve(database: str, state_dir: Path) -> None:
    """Serve until standard input is closed."""
    settings = Settings(
        state_dir=state_dir,
        database_url=database,
        requests_per_s=0,
        streams_per_identity=4000,
        queued_jobs_per_identity=10_000,
    )
    store = await Store.open(settings.database_url)
    lease = await store.acquire_lease("benchmark", _LEASE_S)
    assert lease is not None, "nothing else uses the database"
    watch, token = Stopwatch(), ensure_token(settings.token_path, create=settings.token_file is None)
    metrics = Metrics(store, rule_of(settings))
    services = Services(store, cast(Cluster, IdleCluster()), settings, render_metrics=metrics.render)
    with _measured(watch):
        app = create_app(services, token)
        config = uvicorn.Config(
            watch.wrap_app(cast(ASGIApp, app)), http=connection_class(settings), ws="none", log_level="warning",
            access_log=False, lifespan="on",
        )  # fmt: skip
        server = AsgiServer(config)
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110  # uvicorn has a flag, no event
            await asyncio.sleep(0.01)
        freeze_started_objects()
        ready = {
            "url": f"http://127.0.0.1:{listener.getsockname()[1]}", "owner": token.value,
            "person": await _create_person(store),
        }  # fmt: skip
        print(json.dumps(ready), flush=True)
        await _obey(Supervisor(store, lease), watch)
        server.should_exit = True
        await serving
    await store.close()


@contextlib.contextmanager
def _measured(watch: Stopwatch) -> Iterator[None]:
    original = Authenticator.identify
    measure = watch.wrap_identify(original)

    async def identify(self: Authenticator, value: str | None, *, has_header: bool) -> Any:
        return await measure(self, value, has_header=has_header)

    Authenticator.identify = identify
    try:
        yield
    finally:
        Authenticator.identify = original


async def _create_person(store: Store) -> str:
    parts = generate_token()
    await store.identities.create_identity(IdentityRow(PERSON, IdentityKind.USER, None, True, 0.0, PERSON))
    await store.identities.create_token(TokenRow(parts.id, PERSON, "", parts.digest, None, None, 0.0, PERSON))
    return parts.value


async def _obey(supervisor: Supervisor, watch: Stopwatch) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        answer: Any = {}
        match line.split():
            case ["run", job_id]:
                await supervisor.run(job_id)
            case ["steps", job_id, count, pause_s]:
                await supervisor.steps(job_id, int(count), float(pause_s))
            case ["identity"]:
                answer = watch.reset()
            case _:
                raise SystemExit(f"unknown command: {line!r}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    given = parser.parse_args()
    given.state_dir.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(given.database, given.state_dir))
