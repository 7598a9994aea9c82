"""The database does not answer for a minute. Jobs train, recover a lost rank, and have a complete history."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.regroup_server import Server, eventually
from tests.support.servers.tcp_proxy import Proxy, proxied

Spec = Callable[..., dict[str, Any]]
SILENT_S = 60.0
ANSWERS_WITHIN_S = 45.0
"""Twice the timeout of a statement, plus the time until the client repeats its request."""
RANKS = {0, 1, 2, 3}
ONE_EXIT = Expected(incidents=(frozenset({"rank_exit"}),))

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with proxied(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def behind_it(
    proxy: Proxy, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server whose database is behind the proxy."""
    url = postgres_server.create_database().replace(f":{postgres_server.port}/", f":{proxy.port}/")
    server = Server(tmp_path_factory.mktemp("behind") / "state", arguments=["--database-url", url])
    server.start()
    yield server
    proxy.resume()
    server.down()


def test_training_and_recovery_do_not_need_the_database(
    behind_it: Server, proxy: Proxy, spec: Spec, tmp_path: Path
) -> None:
    control = behind_it.run(spec("control"))
    gates = Gates(tmp_path, 6, 18)
    faults = [{"at": {"rank": 1, "step": 12, "phase": "backward"}, "do": "sigkill"}]
    job = behind_it.client.submit(spec("silent", faults=faults, **gates.parts))
    eventually(lambda: behind_it.client.get(job.id).step == 5)
    with check_all_invariants(behind_it, job, ONE_EXIT, control):
        _falls_silent(behind_it, proxy, job, gates)
        eventually(lambda: behind_it.client.get(job.id).step == 17, 120)
        gates.open(18)
        behind_it.client.wait(job.id, timeout_s=240)


def _falls_silent(behind_it: Server, proxy: Proxy, job: Job, gates: Gates) -> None:
    """Stall the database for a minute. The server answers requests with an error."""
    proxy.stall()
    silent_s = time.monotonic()
    gates.open(6)
    # The job loses a rank and recovers during the outage.
    eventually(lambda: gates.ranks_at(18, generation=2).keys() == RANKS, 120)
    started_s = time.monotonic()
    with Client(behind_it.url, patience_s=0.0) as hasty, pytest.raises((ApiError, ServerUnreachableError)):
        hasty.get(job.id)
    assert time.monotonic() - started_s < ANSWERS_WITHIN_S
    time.sleep(max(0.0, SILENT_S - (time.monotonic() - silent_s)))
    proxy.resume()
