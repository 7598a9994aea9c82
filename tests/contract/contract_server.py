"""The real app with identity, for the contract test: people in several roles, two projects, jobs, hooks and nodes."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from regroup.api.app import create_app
from regroup.api.client.client import Client
from regroup.api.web.server_config import configure
from regroup.service.domain.topology import Node
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.assembly.services import Services
from regroup.service.server.listener import bind, url_of
from regroup.service.settings import Settings
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster

_OWNER = "token-of-the-owner-in-the-contract-test"
_ROLES = {"admin": ("vision", "admin"), "editor": ("vision", "editor"), "viewer": ("vision", "viewer"),
          "stranger": ("speech", "admin")}  # fmt: skip
"""Person → project and role."""
_SPEC = {"workload": {"kind": "script", "entrypoint": "/train.py"}, "layout": {"dp": {"min": 1, "target": 2, "max": 4}}}


@dataclass(frozen=True)
class ContractServer:
    """A running server."""

    url: str
    tokens: Mapping[str, str]
    """Token of each person, and that of the owner as `operator`."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[ContractServer]:
    """Start a server in a thread, with objects of each kind; end it when the block ends."""
    reported: list[str] = []
    up, stop = threading.Event(), threading.Event()
    # No rate: a refused request would find nothing. Nothing else differs from a server on loopback.
    settings = Settings(state_dir=folder, port=0, requests_per_s=0)

    async def serve() -> None:
        store, cluster = await Store.open(settings.database_url), FakeCluster()
        for number in (16, 17):
            cluster.add_node(Node(f"{number:040}", f"gpu-{number}", f"10.0.0.{number}", cpus=4, free_cpus=4))
        app = create_app(Services(store, cluster, settings), ApiToken(_OWNER, folder / "token"))
        server = _Server(configure(app, settings, log_config=None, timeout_graceful_shutdown=1))
        with bind(settings) as listener:
            running = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:  # noqa: ASYNC110  # uvicorn has a flag, no event
                await asyncio.sleep(0.01)
            reported.append(url_of(settings, listener))
            up.set()
            await asyncio.to_thread(stop.wait)
            server.should_exit = True
            await running
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(30), "the server did not start"
        yield ContractServer(reported[0], _fill(reported[0]))
    finally:
        stop.set()
        thread.join(30)


def _fill(url: str) -> dict[str, str]:
    """Create people, projects, jobs and hooks; return the tokens."""
    tokens = {"operator": _OWNER}
    with Client(url, token=_OWNER) as client:
        for project in ("vision", "speech"):
            client.set_project(project, {"guaranteed": 2, "limit": 16})
        for person, (project, role) in _ROLES.items():
            client.create_identity(person, kind="user")
            client.set_member(project, person, role)
            tokens[person] = client.create_token("contract", subject=person).value
        for project in ("default", "vision", "speech"):
            spec: dict[str, Any] = {**_SPEC, "project": project}
            client.submit({**spec, "name": "gpt"})
            client.cancel(client.submit({**spec, "name": "ended"}).id)
            client.create_hook(project, "alerts", url="https://receiver.example.com/in")
    return tokens
