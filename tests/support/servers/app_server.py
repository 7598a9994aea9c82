"""The real app in a thread of this process: uvicorn, SQLite, and a cluster in memory."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvicorn

from regroup.api.app import create_app
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.local.api_token import ensure_token
from regroup.service.local.secrets_key import KeySource
from regroup.service.operations.assembly.services import Services
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Lease
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.job_events import event_data
from tests.support.servers.stores import open_store


class AppServer:
    """A server in a separate thread, with methods that write what a controller and a supervisor would."""

    def __init__(self, state_dir: Path) -> None:
        self._settings = Settings(state_dir=state_dir, allow_faults=False)
        self._token = ensure_token(self._settings.token_path, create=False)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(20), "the server did not start"

    async def _serve(self) -> None:
        self.store = await open_store(self._settings.database_url)
        lease = await self.store.acquire_lease("test", 600.0)
        assert lease is not None
        self.lease: Lease = lease
        self.cluster = FakeCluster()
        keys = KeySource(self._settings)
        keys.prepare()
        self.services = Services(self.store, self.cluster, self._settings, keys=keys)
        app = create_app(self.services, self._token)
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110  # uvicorn has a flag, no event
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self._ready.set()
        await serving
        await self.store.close()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._loop.close()

    def start_job(self, job_id: str) -> None:
        for source, target, reason in (
            (JobState.QUEUED, JobState.PLACING, Reason.PLACED), (JobState.PLACING, JobState.STARTING, Reason.RESERVED),
        ):  # fmt: skip
            self.do(self.store.apply(self.lease, check_transition(job_id, source, target, reason), now=1000.0))

    def report(self, job_id: str, events: list[dict[str, Any]]) -> None:
        """Report `events` of the story as the supervisor would."""
        reported: list[SupervisorEvent] = []
        for seq, event in enumerate(events, 1):
            data = dict(event["data"])
            if event["type"] == "state":
                data["state"] = data.pop("to")
            if event["type"] == "generation":
                data |= {"world_size": 4}
            if event["type"] == "step":
                data |= {"samples": 4, "samples_hash": 1, "duration_s": 0.1}
            generation = int(data.get("number") or data.get("generation") or 1)
            kind, time_s = str(event["type"]), 1000.0 + seq
            data = event_data(kind, generation, time_s, data)
            reported.append(SupervisorEvent(seq, f"k{seq}", kind, generation, time_s, data))
        self.do(self.store.ingest(self.lease, job_id, "boot", reported, {}))
