"""A node on which agents die repeatedly is quarantined. New jobs avoid it, and running jobs continue there."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.servers.regroup_server import Server, agent_of, eventually

pytestmark = [pytest.mark.slow, pytest.mark.alone]
FLAPPED = Expected(
    "CANCELLED", "cancelled_by_user", (frozenset({"agent_lost"}),) * 3, detect_s=6.0, total_s=25.0, steps_lost=4000
)
"""Many steps may be lost: they are short, and a mirror does not cover every one."""
APART_S = 31.0
"""Losses within half a minute count as one."""


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that quarantines nodes."""
    server = Server(tmp_path_factory.mktemp("own") / "state")
    server.start()
    yield server
    server.down()


def test_a_flapping_node_is_avoided_until_it_is_uncordoned(own: Server, spec: Callable[..., dict[str, Any]]) -> None:
    job = own.client.submit(spec("flaps", steps=1_000_000))  # on both nodes, so that none can replace the other
    with check_all_invariants(own, job, FLAPPED):
        bad, good = _flaps(own, job)
        own.client.cancel(job.id)
        own.client.wait(job.id, timeout_s=60)
    wide = own.client.submit(spec("wide"))
    eventually(lambda: [each.reason for each in own.client.get(wide.id).conditions] == ["nodes_closed"], 30)
    assert own.run(spec("narrow", layout={"dp": 2})).state == "SUCCEEDED"
    assert {rank.node_name for rank in own.client.generations("narrow")[0].ranks} == {good}
    own.client.uncordon(bad, reason="its cable was loose")
    assert own.client.wait(wide.id, timeout_s=120).state == "SUCCEEDED"


def _flaps(own: Server, job: Job) -> tuple[str, str]:
    """Kill one node's agent repeatedly; return the names of that node and of the other one."""
    killed_s = -APART_S

    def trains(generation: int) -> bool:
        found = own.client.get(job.id)
        return found.generation == generation and found.state == "RUNNING"

    for generation in (1, 2, 3):
        eventually(lambda number=generation: trains(number), 60)
        time.sleep(max(0.0, killed_s + APART_S - time.monotonic()))
        first = next(stack for stack in own.client.stacks(job.id) if stack.rank == 0)
        os.kill(agent_of(first.pid), signal.SIGKILL)
        killed_s = time.monotonic()
    eventually(lambda: trains(4), 60)
    bad, good = sorted(own.client.nodes(), key=lambda node: -node.health.score)
    assert bad.name == first.node and [fault.kind for fault in bad.health.faults] == ["agent_lost"] * 3
    assert bad.health.status == "quarantined" and bad.health.quarantines == 1
    assert [here.name for here in bad.jobs] == ["flaps"], "the job continues there"
    assert good.health.status == "open" and good.health.score == 0
    return bad.name, good.name
