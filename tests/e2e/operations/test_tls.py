"""A server with TLS, as a process: the command line on this machine and elsewhere, and addresses that are refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.api.client.client import Client
from tests.support.inputs.certificates import CertificateFiles, write_certificate
from tests.support.servers.regroup_server import Server


class TlsServer(Server):
    """A server with a certificate of localhost."""

    def __init__(self, folder: Path) -> None:
        self.files: CertificateFiles = write_certificate(folder)
        files = ["--tls-cert", str(self.files.certificate), "--tls-key", str(self.files.key)]
        super().__init__(folder / "state", nodes=1, arguments=[*files, "--public-host", "localhost"])

    def start(self) -> None:
        """Start the server, and trust its certificate."""
        super().start()
        self.client = Client(self.url, ca_file=self.files.certificate)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("tls"))
    server.start()
    yield server
    server.down()


def cli(server: TlsServer, *arguments: str, ca_file: Path | None) -> subprocess.CompletedProcess[str]:
    trusted = {} if ca_file is None else {"REGROUP_CA_FILE": str(ca_file)}
    environment = {**os.environ, "REGROUP_STATE_DIR": str(server.state), **trusted}
    command = [sys.executable, "-m", "regroup.api.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.mark.slow
def test_commands_find_the_server_and_its_token(encrypted: TlsServer) -> None:
    assert encrypted.url.startswith("https://localhost:")
    done = cli(encrypted, "nodes", ca_file=encrypted.files.certificate)
    assert done.returncode == 0 and "local-1" in done.stdout, done.stderr


@pytest.mark.slow
def test_an_unknown_authority_is_refused_with_its_reason(encrypted: TlsServer) -> None:
    refused = cli(encrypted, "nodes", ca_file=None)
    assert refused.returncode != 0 and "certificate" in refused.stderr.lower(), refused.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--host", "0.0.0.0"), "the network would carry tokens without encryption"),
        (("--host", "0.0.0.0", "--behind-proxy"), "name the hosts under which clients reach the server"),
        (("--tls-cert", "x.pem"), "tls_cert and tls_key belong together"),
    ],
)
def test_an_unsafe_address_is_refused_before_the_start(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    command = [sys.executable, "-m", "regroup.api.cli", "serve", "--state-dir", str(tmp_path / "state"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and text in done.stderr, done.stderr
