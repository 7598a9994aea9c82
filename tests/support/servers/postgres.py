"""A PostgreSQL server of the test session."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.ports import free_port


@dataclass(frozen=True)
class PostgresServer:
    """A server of this session, on loopback, without fsync."""

    binaries: Path
    port: int
    socket_folder: Path

    def create_database(self) -> str:
        """Make an empty database and return its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        command = [self.binaries / "createdb", "-h", self.socket_folder, "-p", str(self.port), "-U", "regroup", name]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return f"postgresql+asyncpg://regroup@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL. Mark the test `postgres`, so that it skips on machines without one."""
    binaries = postgres_folder()
    if binaries is None:
        pytest.skip("postgres: no initdb (apt-get install postgresql)")
    # initdb refuses root: the server runs as an unprivileged user, in a folder that this user can access.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="regroup-pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    port = free_port()
    data = folder / "data"
    options = ["--auth=trust", "--username=regroup", "--no-sync", "--encoding=UTF8", "--locale=C"]
    server = None
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, *options], check=True, capture_output=True, text=True, user=user
        )
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (folder / "log").open("wb")
        server = subprocess.Popen([binaries / "postgres", "-D", data, *flags], user=user, stdout=log, stderr=log)
        log.close()
        _wait_for_postgres(binaries, folder, port, server)
        yield PostgresServer(binaries, port, folder)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown
            server.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


def postgres_folder() -> Path | None:
    """Return the folder of initdb. Debian installs it outside of PATH, one folder per version."""
    on_path = shutil.which("initdb")
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    newest = max(folders, key=lambda folder: int(folder.parent.name), default=None)
    return Path(on_path).resolve().parent if on_path else newest


def _wait_for_postgres(binaries: Path, folder: Path, port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    ready = [binaries / "pg_isready", "-q", "-h", folder, "-p", str(port), "-U", "regroup"]
    while subprocess.run(ready, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)
