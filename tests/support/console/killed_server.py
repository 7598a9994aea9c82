"""A server process that tests kill with SIGKILL and start again on the same port and state, and a browser on it."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from regroup.service.local.api_token import ensure_token
from regroup.service.settings import Settings
from tests.support.console.scripted_console_server import output_path
from tests.support.console.signed_in_page import WAIT_MS, Console, sign_in

if TYPE_CHECKING:
    from playwright.async_api import Browser

_START_S = 120.0
_ROOT = Path(__file__).parents[3]


@dataclass
class KilledServer:
    """`regroup serve` as a process."""

    state: Path
    port: int
    token: str
    kills: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Address of the server; the same after each start."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start the server, and wait until it answers."""
        module = "tests.support.console.scripted_console_server"
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        with (self.state.parent / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, str(self.state), str(self.port), stdout=log, stderr=log, env=environment
            )
        async with asyncio.timeout(_START_S):
            while not await self._is_ready():
                assert self._process.returncode is None, (self.state.parent / "server.log").read_text()
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self.kills += 1

    async def replace(self) -> None:
        """Kill the server, and start another one on its port and state."""
        await self.kill()
        await self.start()

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the owner; return the JSON of a successful answer."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=20) as http:
            answer = await http.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

    async def is_accepted(self, token: str) -> bool:
        """Return whether the server accepts a token."""
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=20) as http:
            answer = await http.get("/v1/me")
            assert answer.status_code in (200, 401), answer.text
            return answer.status_code == 200

    async def submit(self, name: str, ranks: int = 2, **fields: Any) -> str:
        """Submit a job with more fields of its spec; return its id. The cluster has devices for two ranks."""
        training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
        workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
        layout = {"dp": {"min": ranks, "target": ranks, "max": ranks}}
        spec = {"name": name, "workload": workload, "training": training, "layout": layout, **fields}
        return (await self.request("POST", "/v1/jobs", spec))["id"]

    async def wait_for_state(self, job: str, state: str) -> None:
        """Wait until a job has a state."""
        async with asyncio.timeout(_START_S):
            while (await self.request("GET", f"/v1/jobs/{job}"))["state"] != state:  # noqa: ASYNC110  # another process changes it
                await asyncio.sleep(0.1)

    def write_output(self, job: str, rank: int, text: str, generation: int = 1, stream: str = "stdout") -> None:
        """Set the output of a rank."""
        path = output_path(self.state / "outputs", job, generation, rank, stream)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    async def _is_ready(self) -> bool:
        try:
            async with httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=2) as http:
                return (await http.get("/readyz")).is_success
        except httpx2.HTTPError:
            return False


@pytest.fixture
async def killed_server(tmp_path: Path) -> AsyncIterator[KilledServer]:
    """Run a server that the test may kill."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    token = ensure_token(Settings(state_dir=state).token_path, create=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = KilledServer(state, port, token.value)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


@pytest.fixture
async def killed_console(killed_server: KilledServer, chromium: "Browser") -> AsyncIterator[Console]:
    """Open the console of that server as its owner. A test fails if a script of a page failed."""
    context = await chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(2 * WAIT_MS)
    await sign_in(context, killed_server.url, killed_server.token)
    opened = Console(killed_server.url, context, await context.new_page())
    opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
    yield opened
    await context.close()
    assert opened.faults == []
