"""One server for all tests of this folder. Tests lose and drain nodes; each test starts with three."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server, eventually

_NODES = 3


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that started with three nodes of two slots."""
    server = Server(tmp_path_factory.mktemp("three") / "state", nodes=_NODES)
    server.start()
    yield server
    server.down()


@pytest.fixture
def three(cluster: Server) -> Server:
    """The server with three open nodes. New nodes replace those that earlier tests lost."""
    for _ in range(_NODES - cluster.count_open()):
        cluster.join()
    eventually(lambda: cluster.count_open() == _NODES)
    return cluster


@pytest.fixture(scope="package")
def undisturbed(cluster: Server, spec: Callable[..., dict[str, Any]]) -> Job:
    """The undisturbed run of the jobs of the parent folder."""
    job = cluster.run(spec("undisturbed"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    return job
