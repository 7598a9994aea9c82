"""Two control planes on one PostgreSQL and one Ray. The leader dies, the other takes over, and jobs do not notice."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regroup.service.local import ray_cluster
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]

LEASE_S = 6.0
pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers. The first one leads; the other joined its Ray."""
    folder, one, two = (tmp_path_factory.mktemp(name) for name in ("shared", "one", "two"))
    shared = ["--database-url", postgres_server.create_database(), "--storage-uri", (folder / "storage").as_uri()]
    environment = {"REGROUP_LEASE_S": str(LEASE_S)}
    first = Server(one / "state", environment=environment, arguments=shared)
    try:
        first.start()
        ray = ray_cluster.load(first.state)
        assert ray is not None
        environment |= ray_cluster.ray_environment(first.state / "ray.token")
        joined = [*shared, "--ray-address", ray.address]
        second = Server(two / "state", environment=environment, arguments=joined)
        try:
            second.start()
            yield first, second
        finally:
            second.down()
    finally:
        first.down()


def leads(server: Server) -> bool:
    return server.client.health().checks["controller"] == "leads"


def test_the_leader_dies_and_the_other_takes_over(pair: tuple[Server, Server], spec: Spec) -> None:
    first, second = pair
    eventually(lambda: leads(first))
    assert not leads(second)
    job = second.client.submit(spec("outlives", steps=100000, checkpoint={"every_steps": 10000}))
    followed: list[int] = []
    following = threading.Thread(
        target=lambda: followed.extend(event.number for event in second.client.events(job.id, follow=True))
    )
    following.start()
    eventually(lambda: second.client.get(job.id).step >= 2)
    first.kill()
    eventually(lambda: leads(second), within_s=2 * LEASE_S)
    reached = second.client.get(job.id).step
    eventually(lambda: second.client.get(job.id).step > reached + 2)
    first.start()
    assert not leads(first) and leads(second)
    first.client.cancel(job.id)
    done = first.client.wait(job.id, timeout_s=60)
    assert (done.state, done.incidents, done.generation) == ("CANCELLED", [], 1)
    following.join(30)
    for server in pair:
        numbers = [event.number for event in server.client.events(job.id)]
        assert numbers == list(range(1, len(numbers) + 1)) == followed
        assert [row.step for row in server.client.steps(job.id)] == list(range(1, done.step + 1))
        ledger = server.client.ledger(job.id)
        assert ledger.exact, ledger.problems
    eventually(lambda: not first.agents(), 30)
