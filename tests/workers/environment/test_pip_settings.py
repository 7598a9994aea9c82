"""Settings of pip reach uv: variables of the node and of the job, and the files `pip.conf`."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regroup.workers.environment.installer import Installer
from regroup.workers.environment.pip_settings import pip_conf_files, read_pip_conf, uv_settings
from tests.support.packages.tiny_packages import wheel

NO_FILES = {"PIP_CONFIG_FILE": os.devnull}


@pytest.mark.parametrize(
    ("pip", "uv"),
    [
        ({"PIP_INDEX_URL": "https://a/simple"}, {"UV_DEFAULT_INDEX": "https://a/simple"}),
        (
            {"PIP_EXTRA_INDEX_URL": "https://a  https://b"},
            {"UV_INDEX": "https://a https://b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"PIP_FIND_LINKS": "/a /b"}, {"UV_FIND_LINKS": "/a,/b"}),
        ({"PIP_DEFAULT_TIMEOUT": "180", "PIP_RETRIES": "9"}, {"UV_HTTP_TIMEOUT": "180", "UV_HTTP_RETRIES": "9"}),
        ({"PIP_CERT": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"PIP_PRE": "yes", "PIP_REQUIRE_HASHES": "0"}, {"UV_PRERELEASE": "allow"}),
        ({"PIP_ONLY_BINARY": ":all:", "PIP_NO_BINARY": "a,b"}, {"UV_NO_BUILD": "1", "UV_NO_BINARY_PACKAGE": "a b"}),
        ({"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "https://b"}, {"UV_DEFAULT_INDEX": "https://b"}),
        ({"PIP_INDEX_URL": "https://a", "UV_INDEX_URL": "https://b"}, {"UV_DEFAULT_INDEX": "https://b"}),
        ({"PIP_PROXY": "http://p"}, {"HTTP_PROXY": "http://p", "HTTPS_PROXY": "http://p"}),
    ],
)
def test_variables_of_pip_are_converted(pip: dict[str, str], uv: dict[str, str]) -> None:
    settings = uv_settings({**NO_FILES, **pip}, pip.keys())
    assert (settings.variables, settings.has_index, settings.ignored) == (uv, True, ())


def test_the_job_takes_precedence_over_the_node_and_the_node_over_files(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://file\nretries = 1\n[install]\nretries = 2\n")
    node = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}
    read = uv_settings(node, ())
    assert (read.variables["UV_DEFAULT_INDEX"], read.variables["UV_HTTP_RETRIES"]) == ("https://file", "2")
    node["UV_DEFAULT_INDEX"] = "https://node"
    assert uv_settings(node, ()).variables["UV_DEFAULT_INDEX"] == "https://node"
    job = {"PIP_INDEX_URL": "https://job"}
    assert uv_settings({**node, **job}, job.keys()).variables["UV_DEFAULT_INDEX"] == "https://job"


def test_the_files_of_pip_are_read() -> None:
    """Compare with pip itself: it prints the files that it reads."""
    command = [sys.executable, "-m", "pip", "config", "debug"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = [line.split(",")[0].strip() for line in printed.splitlines() if ", exists: " in line]
    assert set(map(str, pip_conf_files(os.environ))) == set(files)
    assert pip_conf_files(NO_FILES) == []


def test_a_broken_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("index-url")
    (tmp_path / "good").write_text("[global]\nfind_links = /a\n  /b\n")
    assert read_pip_conf([tmp_path / "broken", tmp_path / "none", tmp_path / "good"]) == {"find-links": "/a\n/b"}


def test_settings_without_a_counterpart_are_named() -> None:
    settings = uv_settings({**NO_FILES, "PIP_USE_FEATURE": "x", "PIP_NO_INPUT": "1", "PIP_NO_INDEX": "true"}, ())
    assert settings.ignored == ("use-feature",) and not settings.has_index


class _Index(SimpleHTTPRequestHandler):
    """A package index that serves a folder to one user."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != "Basic cm9ib3Q6dG9rZW4=":  # robot:token
            self.send_error(401)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[int]:
    """Serve the package `flavour` over HTTP; return the port."""
    wheel(tmp_path / "served" / "simple" / "flavour", "flavour", "1.0", {"flavour.py": "VERSION = '1.0'\n"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: _Index(*args, directory=str(tmp_path / "served")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_an_index_with_credentials_is_used_and_stays_secret(index: int, tmp_path: Path) -> None:
    job = {**NO_FILES, "PIP_INDEX_URL": f"http://robot:token@127.0.0.1:{index}/simple"}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    log = tmp_path / "uv.out"
    installer = Installer({**env, **job}, job.keys(), str, log, lambda fraction, message: None)
    installer.install(tmp_path / "venv", ["flavour"], "none")
    assert list((tmp_path / "venv").glob("lib/python3*/site-packages/flavour.py"))
    assert "token" not in log.read_text()
