"""A node's clock jumps by an hour, forward and back, while a job trains there. It is reported, and has no effect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.chaos.invariants import Expected
from regroup.service.local import ray_cluster
from regroup.service.settings import Settings
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.machines.wall_clock import Clock
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.slow, pytest.mark.compiler, pytest.mark.alone]
HOUR_S = 3600
SET_AT = {4: HOUR_S, 12: 0, 20: -HOUR_S}
"""Step at whose commit the job waits → seconds by which the clock is ahead from then on."""
STEPS = 30
REPORTED_WITHIN_S = 60.0


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Clock]]:
    """A server with two nodes. The second one has its own clock."""
    folder = tmp_path_factory.mktemp("clocks")
    server, clock = Server(folder / "state", nodes=1), Clock(folder)
    server.start()
    try:
        with clock.inherited():
            kind = Settings(state_dir=server.state, local_nodes=1, slots_per_node=2, local_gpus_per_node=0)
            assert ray_cluster.add_node(kind) == "local-2"
        yield server, clock
    finally:
        server.down()


def test_nothing_expires_and_the_result_is_the_same(other: tuple[Server, Clock], spec: Spec, tmp_path: Path) -> None:
    server, clock = other
    control = server.run(spec("calm", steps=STEPS))
    gates = Gates(tmp_path, *SET_AT)
    job = server.client.submit(spec("jumpy", steps=STEPS, **gates.parts))
    with check_all_invariants(server, job, Expected(), control):
        for number, (step, ahead_s) in enumerate(SET_AT.items(), 1):
            eventually(lambda step=step: len(gates.ranks_at(step)) == 4, 120)
            clock.set(ahead_s)
            eventually(lambda number=number: len(reported_jumps(server, job.id)) == number, REPORTED_WITHIN_S)
            gates.open(step)
        server.client.wait(job.id, timeout_s=120)
    assert reported_jumps(server, job.id) == [pytest.approx(each, abs=5) for each in (HOUR_S, -HOUR_S, -HOUR_S)]
    (formed,) = server.client.generations(job.id)
    assert {rank.node_name for rank in formed.ranks} == {"local-1", "local-2"}
    durations = [row.duration_s for row in server.client.steps(job.id) if row.duration_s is not None]
    assert min(durations) >= 0 and max(durations) < HOUR_S / 2


def reported_jumps(server: Server, job: str) -> list[float]:
    """Return the seconds of each clock jump that was reported."""
    return [
        event.data["seconds"] for event in server.client.events(job) if event.data.get("kind") == "clock_set"
    ]  # fmt: skip
