"""Sources of a client's token, and requests after the token has changed."""

import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest

from regroup.api.cli.main import main
from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.connection.access_token import TokenAuth, find_token
from regroup.api.client.connection.errors import ApiError
from regroup.service.domain.errors import ForbiddenError
from regroup.service.local import processes
from regroup.service.server import control_plane

URL = "http://127.0.0.1:8500"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of a running server: this process."""
    monkeypatch.delenv("REGROUP_TOKEN", raising=False)
    monkeypatch.delenv("REGROUP_TOKEN_FILE", raising=False)
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    (tmp_path / "api.token").write_text("of-this-machine\n")
    control_plane.write_record(tmp_path, URL, None, tmp_path / "api.token")
    return tmp_path


def test_the_token_of_this_machines_server_is_found(state: Path) -> None:
    assert (
        find_token(URL) == find_token("http://localhost:8500") == find_token("http://[::1]:8500/") == "of-this-machine"
    )


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9999", "http://example.org:8500", "https://127.0.0.1:8500", "unix:/s"]
)
def test_another_server_does_not_get_it(state: Path, url: str) -> None:
    assert find_token(url) is None


def test_the_server_of_a_unix_socket_is_known_by_its_path(state: Path) -> None:
    record = state / "server.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "url": "unix:/run/a.sock"}))
    assert find_token("unix:/run/a.sock") == "of-this-machine"
    assert find_token("unix:/run/b.sock") is None and find_token("http://localhost:8500") is None


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"started": 1}, {"pid": "x"}, {"token_path": "/nowhere"}])
def test_a_program_that_listens_in_place_of_an_ended_server_does_not_get_it(
    state: Path, change: dict[str, Any]
) -> None:
    record = state / "server.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **change}))
    assert find_token(URL) is None


def test_variables_come_before_the_file(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("of-a-file\n")
    monkeypatch.setenv("REGROUP_TOKEN_FILE", str(tmp_path / "other"))
    assert find_token(URL) == "of-a-file"
    monkeypatch.setenv("REGROUP_TOKEN", "of-the-variable")
    assert find_token(URL) == "of-the-variable"


def test_an_unreadable_file_is_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_TOKEN_FILE", "/nowhere/token")
    with pytest.raises(ForbiddenError, match=r"/nowhere/token \(REGROUP_TOKEN_FILE\) cannot be read"):
        find_token(URL)


def test_the_option_comes_before_the_variables(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGROUP_TOKEN", "wrong")
    monkeypatch.setenv("REGROUP_TOKEN_FILE", "/nowhere")
    (tmp_path / "copy").write_text(live.token)

    def run(*arguments: str) -> int | str | None:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        return ended.value.code

    assert run("--token-file", str(tmp_path / "copy"), "--version") == 0
    assert find_token(live.url) == live.token


def test_a_refused_token_is_looked_up_again(state: Path) -> None:
    # A server that lost its state directory has another token after its restart.
    sent: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers.get("Authorization"))
        if request.headers.get("Authorization") != "Bearer new":
            (state / "api.token").write_text("new")
            return httpx2.Response(401)
        return httpx2.Response(200, json={"version": "1", "api": "v1"})

    with Client(URL, transport=httpx2.MockTransport(answer)) as client:
        assert client.version().api == "v1" and client.version().api == "v1"
    assert sent == ["Bearer of-this-machine", "Bearer new", "Bearer new"]


def test_a_given_token_is_the_only_one(state: Path) -> None:
    sent: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers.get("Authorization"))
        return httpx2.Response(401)

    with Client(URL, token="mine", transport=httpx2.MockTransport(answer)) as client, pytest.raises(ApiError):
        client.version()
    assert sent == ["Bearer mine"]
    assert "mine" not in repr(TokenAuth(URL, "mine"))


async def test_both_clients_are_refused_without_the_token_and_streams_too(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await live.submit()
    monkeypatch.setenv("REGROUP_TOKEN", "wrong")
    async with AsyncClient(live.url) as client:
        with pytest.raises(ApiError, match="is not one of this server"):
            await client.get(job["id"])
        with pytest.raises(ApiError, match="is not one of this server"):
            async for _ in client.events(job["id"], follow=True):
                pass
    with pytest.raises(ApiError, match="is not one of this server"):
        await live.client(lambda client: client.get(job["id"]))


def test_the_record_of_this_process_is_alive() -> None:
    process = processes.find_process(os.getpid())
    assert process is not None and process.is_alive
