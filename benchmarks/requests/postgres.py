"""A PostgreSQL of the benchmark: its own data, on loopback, and durable as in production."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_START_S = 60.0


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Start a server with default durability; yield the URL of its database without the name."""
    binaries = _binaries()
    user = "postgres" if os.geteuid() == 0 else None  # initdb refuses root
    folder = Path(tempfile.mkdtemp(prefix="regroup-bench-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    data = folder / "data"
    initdb = [binaries / "initdb", "-D", data, "--auth=trust", "--username=regroup", "--encoding=UTF8", "--locale=C"]
    subprocess.run(initdb, check=True, capture_output=True, user=user)
    flags = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", f"unix_socket_directories={folder}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([binaries / "postgres", "-D", data, *flags], user=user, stdout=log, stderr=log)
    try:
        ready = [binaries / "pg_isready", "-q", "-h", folder, "-p", str(port), "-U", "regroup"]
        deadline_s = time.monotonic() + _START_S
        while subprocess.run(ready, check=False).returncode != 0:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield f"postgresql+asyncpg://regroup@127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGINT)  # fast shutdown
        server.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def create_database(server: str, name: str) -> str:
    """Create an empty database; return its URL."""
    port = server.rpartition(":")[2]
    command = [_binaries() / "createdb", "-h", "127.0.0.1", "-p", port, "-U", "regroup", name]
    subprocess.run(command, check=True, capture_output=True)
    return f"{server}/{name}"


def _binaries() -> Path:
    """Return the folder of initdb. Debian installs it outside of PATH, one folder per version."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not folders:
        raise RuntimeError("no initdb: the benchmark needs PostgreSQL (apt-get install postgresql)")
    return max(folders, key=lambda folder: int(folder.parent.name))
