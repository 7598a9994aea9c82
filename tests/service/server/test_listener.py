"""The listening socket: ports, Unix sockets, and the URL for clients of this machine."""

import stat
from pathlib import Path
from typing import Any

import pytest

from regroup.service.domain.errors import ConflictError
from regroup.service.server.listener import bind, url_of
from regroup.service.settings import Settings

TLS: dict[str, Any] = {"tls_cert": "chain.pem", "tls_key": "key.pem"}


def test_a_port_in_use_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with bind(Settings(state_dir=tmp_path, port=0)) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"port {port} .* is in use .* --port 0"):
            bind(Settings(state_dir=tmp_path, port=port))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "http://127.0.0.1:PORT"),
        ({"host": "localhost"}, "http://127.0.0.1:PORT"),
        ({"host": "::1"}, "http://[::1]:PORT"),
        (TLS, "https://127.0.0.1:PORT"),
        ({**TLS, "public_hosts": ("train.example", "b.example")}, "https://train.example:PORT"),
        ({"behind_proxy": True, "public_hosts": ("train.example",)}, "http://127.0.0.1:PORT"),
    ],
)
def test_the_url_is_the_one_that_clients_here_use(tmp_path: Path, fields: dict[str, Any], url: str) -> None:
    settings = Settings(state_dir=tmp_path, port=0, **fields)
    with bind(settings) as listener:
        assert url_of(settings, listener) == url.replace("PORT", str(listener.getsockname()[1]))


def test_a_unix_socket_is_private_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, unix_socket=tmp_path / "api.sock")
    with bind(settings) as listener:
        assert stat.S_IMODE((tmp_path / "api.sock").stat().st_mode) == 0o600
        assert url_of(settings, listener) == f"unix:{tmp_path}/api.sock"
    with bind(settings) as listener:
        listener.listen()
        with pytest.raises(ConflictError, match="another server listens"):
            bind(settings)


def test_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConflictError, match="is not a socket"):
        bind(Settings(state_dir=tmp_path, unix_socket=tmp_path / "file"))
    with pytest.raises(ConflictError, match="cannot listen on"):
        bind(Settings(state_dir=tmp_path, unix_socket=tmp_path / "no" / "folder"))
