"""The web server with TLS, behind a proxy, and on a Unix socket: real connections."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from regroup.api.app import create_app
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ServerUnreachableError
from regroup.api.web.connections import LimitedConnection, connection_class
from regroup.api.web.server_config import configure
from regroup.service.domain.errors import ConflictError, ForbiddenError
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.assembly.services import Services
from regroup.service.server.listener import bind, url_of
from regroup.service.settings import Settings
from regroup.service.store.access.audit import AuditFilter
from regroup.service.store.store import Store
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.certificates import write_certificate
from tests.support.servers.stores import open_store

TOKEN = "token-of-these-connections"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, owner_token: str = TOKEN, **fields: Any) -> AsyncIterator[tuple[str, Store]]:
    """Serve with settings; yield the URL for clients of this machine."""
    settings = Settings(state_dir=tmp_path, port=0, **fields)
    store = await open_store(settings.database_url)
    app = create_app(Services(store, FakeCluster(), settings), ApiToken(owner_token, tmp_path / "token"))
    server = _Server(configure(app, settings, log_config=None, timeout_graceful_shutdown=1))
    with bind(settings) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110  # uvicorn has a flag, no event
            await asyncio.sleep(0.01)
        yield url_of(settings, listener), store
        server.should_exit = True
        await running
    await store.close()


def whoami(url: str, **options: Any) -> str:
    with Client(url, token=TOKEN, patience_s=0.0, **options) as client:
        return client.me().subject


async def test_a_client_trusts_the_authority_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_certificate(tmp_path)
    other = write_certificate(_folder(tmp_path / "other"))
    tls = {"tls_cert": files.certificate, "tls_key": files.key, "public_hosts": ("localhost",)}
    async with serving(tmp_path, **tls) as (url, _):
        assert url.startswith("https://localhost:")
        assert await asyncio.to_thread(whoami, url, ca_file=files.certificate)
        with pytest.raises(ServerUnreachableError, match=r"(?i)certificate"):
            await asyncio.to_thread(whoami, url, ca_file=other.certificate)
        with pytest.raises(ServerUnreachableError, match=r"(?i)certificate"):
            await asyncio.to_thread(whoami, url)
        monkeypatch.setenv("REGROUP_CA_FILE", str(files.certificate))
        assert await asyncio.to_thread(whoami, url)
        with pytest.raises(ServerUnreachableError):
            await asyncio.to_thread(whoami, url.replace("https", "http"))
    monkeypatch.setenv("REGROUP_CA_FILE", str(tmp_path / "none"))
    with pytest.raises(ForbiddenError, match="REGROUP_CA_FILE"):
        await asyncio.to_thread(whoami, url)


async def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    settings = Settings(state_dir=tmp_path, tls_cert=files.certificate, tls_key=files.key)
    context = configure(None, settings).ssl
    assert context is not None and context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("wrong", ["tls_cert", "tls_key"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, wrong: str) -> None:
    files = write_certificate(tmp_path)
    (tmp_path / "wrong").write_text("no PEM")
    for path in (tmp_path / "wrong", tmp_path / "none"):
        fields = {"tls_cert": files.certificate, "tls_key": files.key, wrong: path}
        with pytest.raises(ConflictError, match=f"{path}.*cannot be used"):
            configure(None, Settings(state_dir=tmp_path, **fields))


async def test_only_public_names_are_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path, public_hosts=("train.example",)) as (url, _):
        for host, status in (("train.example", 200), ("TRAIN.example:443", 200), ("evil.example", 421)):
            async with httpx2.AsyncClient(base_url=url, trust_env=False, headers={**BEARER, "Host": host}) as http:
                assert (await http.get("/v1/me")).status_code == status


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, "127.0.0.1"),
        ({"behind_proxy": True}, "203.0.113.9"),
        ({"behind_proxy": True, "proxy_addresses": ("10.0.0.0/8",)}, "127.0.0.1"),
    ],
)
async def test_only_a_proxy_names_the_address_of_its_client(tmp_path: Path, fields: Any, address: str) -> None:
    headers = {**BEARER, "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    async with serving(tmp_path, **fields) as (url, store):
        async with httpx2.AsyncClient(base_url=url, trust_env=False, headers=headers) as http:
            assert (await http.put("/v1/projects/vision", json={"limit": 1})).status_code == 200
        (record,) = await store.audit.page(AuditFilter(), None, 10)
    assert record.address == address


async def test_a_unix_socket_serves_and_needs_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path, unix_socket=tmp_path / "api.sock") as (url, store):
        assert url == f"unix:{tmp_path}/api.sock"
        assert await asyncio.to_thread(whoami, url)
        transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "api.sock"))
        async with httpx2.AsyncClient(base_url="http://localhost", transport=transport) as http:
            assert (await http.get("/v1/me")).status_code == 401
            await http.put("/v1/projects/vision", json={"limit": 1}, headers=BEARER)
        (record,) = await store.audit.page(AuditFilter(), None, 10)
    assert record.address == "local"


class _Transport(asyncio.Transport):
    """A transport that records what is written, of a peer with this address."""

    def __init__(self, peer: Any) -> None:
        super().__init__({"peername": peer})
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.mark.parametrize(
    ("peer", "is_accepted"),
    [
        (("127.0.0.1", 1), True),
        (("::1", 1, 0, 0), True),
        (("10.1.2.3", 1), True),
        (("::ffff:10.1.2.3", 1, 0, 0), True),
        ("", True),
        (("192.168.0.7", 1), False),
        (("fe80::1%eth0", 1, 0, 2), False),
    ],
)
async def test_connections_from_elsewhere_are_refused_behind_a_proxy(
    tmp_path: Path, peer: Any, is_accepted: bool
) -> None:
    settings = Settings(state_dir=tmp_path, behind_proxy=True, proxy_addresses=("10.1.0.0/16",))
    for chosen, accepts in ((settings, is_accepted), (Settings(state_dir=tmp_path), True)):
        kind: type[LimitedConnection] = connection_class(chosen)
        config = configure(None, chosen)
        connection = kind(config=config, server_state=uvicorn.Server(config).server_state, app_state={})
        transport = _Transport(peer)
        connection.connection_made(transport)
        assert transport.is_closed != accepts
        assert (b"403" in transport.written) != accepts
        connection.connection_lost(None)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
