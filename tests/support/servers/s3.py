"""An S3 server on loopback."""

import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.ports import free_port

BUCKET = "regroup-tests"


@dataclass(frozen=True)
class ObjectStorage:
    """A bucket, and the environment variables that a client needs to access it."""

    uri: str
    environment: dict[str, str]

    @property
    def options(self) -> dict[str, Any]:
        """Options of an fsspec file system that accesses the bucket without caches."""
        return {
            "key": self.environment["AWS_ACCESS_KEY_ID"],
            "secret": self.environment["AWS_SECRET_ACCESS_KEY"],
            "endpoint_url": self.environment["AWS_ENDPOINT_URL"],
            "use_listings_cache": False,
            "skip_instance_cache": True,
        }


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """An empty bucket on its own server."""
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent))
    assert program is not None, "moto_server is not installed (pip install -e '.[dev]')"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as output:
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=output)
    try:
        _make_bucket(url, server, log)
        keys = {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "something",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield ObjectStorage(f"s3://{BUCKET}", {"AWS_ENDPOINT_URL": url, **keys})
    finally:
        server.terminate()
        server.wait(timeout=20)


def _make_bucket(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the S3 server did not start: {error}; {log.read_text()[-2000:]}")
            time.sleep(0.05)
