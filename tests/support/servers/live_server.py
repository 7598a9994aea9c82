"""The real app on a real socket, with SQLite, a cluster in memory, and simulated reports of supervisors."""

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from regroup.api.app import create_app
from regroup.api.client.client import Client
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.local.api_token import ensure_token
from regroup.service.local.secrets_key import KeySource
from regroup.service.operations.assembly.services import Services
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.job_events import event_data
from tests.support.servers.stores import open_store


class QuietServer(uvicorn.Server):
    """A server that signals when it has started, and leaves signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Live:
    """A serving control plane."""

    url: str
    token: str
    services: Services
    cluster: FakeCluster
    http: httpx2.AsyncClient
    lease: Lease
    app: Any
    stop: Callable[[], Any]
    """Stops the server, and waits for its end."""
    _sequence: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def store(self) -> Store:
        return self.services.store

    async def submit(self, **fields: Any) -> dict[str, Any]:
        """Submit a job and return the API's answer."""
        answer = await self.http.post("/v1/jobs", json=spec_json(**fields))
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def report(self, job_id: str, *reported: tuple[str, int, dict[str, Any]], status: Any = None) -> None:
        """Report events (type, generation, data) as a supervisor would."""
        events = [
            SupervisorEvent(
                seq := next(self._sequence),
                f"{kind}:{seq}",
                kind,
                generation,
                time_s := 1000.0 + seq,
                event_data(kind, generation, time_s, data),
            )
            for kind, generation, data in reported
        ]
        await self.store.ingest(self.lease, job_id, "boot", events, status or {})

    async def run(self, job_id: str) -> None:
        """Move a queued job to RUNNING at step 1."""
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED),
            (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        ):
            await self.store.apply(self.lease, check_transition(job_id, source, target, reason), now=500.0)
        await self.report(job_id, formed(1, 0), step(1, 1), state("RUNNING", "first_step"))

    async def client(self, call_client: Callable[[Client], Any]) -> Any:
        """Call the Python client in a separate thread and return the result."""

        def call() -> Any:
            with Client(self.url, patience_s=5.0) as client:
                return call_client(client)

        return await asyncio.to_thread(call)


def spec_json(name: str = "gpt", **fields: Any) -> dict[str, Any]:
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    return {"name": name, "workload": workload, "training": training, **fields}


def formed(number: int, start_step: int) -> tuple[str, int, dict[str, Any]]:
    place = {"rank": 0, "node_id": "n0", "node_name": "a", "address": "127.0.0.1", "local_rank": 0, "device": 0}
    layout = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1}
    data = {"number": number, "layout": layout, "world_size": 1, "ranks": [place], "start_step": start_step}
    return "generation", number, {**data, "restore": {"source": "none"}, "cause": "start"}


def step(generation: int, number: int, **data: Any) -> tuple[str, int, dict[str, Any]]:
    row = {"duration_s": 0.5, "loss": 2.0, "tokens": 64, "samples": 4, "samples_hash": 2**64 - number, "stall_s": 0.0}
    return "step", generation, {**row, "step": number, "generation": generation, **data}


def state(name: str, reason: str, **data: Any) -> tuple[str, int, dict[str, Any]]:
    return "state", 1, {"state": name, "reason": reason, "message": "", **data}


@dataclass(frozen=True)
class JobEvents:
    """Builders of a supervisor's events."""

    formed = staticmethod(formed)
    step = staticmethod(step)
    state = staticmethod(state)


@pytest.fixture
def job_events() -> JobEvents:
    return JobEvents()


@pytest.fixture
def make_spec() -> Callable[..., dict[str, Any]]:
    return spec_json


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    settings = Settings(state_dir=tmp_path, allow_faults=False)
    token = ensure_token(settings.token_path, create=False)
    store = await open_store(settings.database_url)
    cluster = FakeCluster()
    keys = KeySource(settings)
    keys.prepare()
    services = Services(store, cluster, settings, keys=keys)
    app = create_app(services, token)
    config = uvicorn.Config(app, port=0, ws="none", log_config=None, timeout_graceful_shutdown=1)
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve())
    await asyncio.wait_for(server.up.wait(), 20)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    lease = await store.acquire_lease("test", 3600.0)
    assert lease is not None

    async def stop() -> None:
        server.should_exit = True
        await serving

    headers = {"Authorization": f"Bearer {token.value}"}
    no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # those of the system need 30 ms
    async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, verify=no_certificates) as http:
        yield Live(url, token.value, services, cluster, http, lease, app, stop)
    await stop()
    await store.close()
