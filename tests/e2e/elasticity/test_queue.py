"""A job of a higher class arrives. The running job saves its last step, queues, and has the undisturbed result."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]


@pytest.fixture
def at_once(tmp_path: Path) -> Iterator[Server]:
    """A server that may preempt jobs as soon as they train."""
    server = Server(tmp_path / "state", environment={"REGROUP_MIN_RUN_S": "0"})
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_a_lower_job_is_preempted_and_loses_no_step(at_once: Server, spec: Spec, tmp_path: Path) -> None:
    control, gates = at_once.run(spec("undisturbed")), Gates(tmp_path, 3)
    low = at_once.client.submit(spec("low", priority="low", **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    high = at_once.client.submit(spec("high", priority="high", steps=4, layout={"dp": 2}))
    eventually(lambda: any(e.data.get("kind") == "leaving" for e in at_once.client.events(low.id)), 60)
    gates.open(3)
    assert at_once.client.wait(high.id, timeout_s=120).state == "SUCCEEDED"
    done = at_once.client.wait(low.id, timeout_s=240)
    assert_same_result(at_once, done, control)
    (incident,) = done.incidents
    assert (incident.reason, incident.recovery_action, incident.steps_lost) == ("preempted", "disk", 0)
    states = [(e.data["to"], e.data["reason"]) for e in at_once.client.events(low.id) if e.type == "state"]
    assert ("RESIZING", "preempted") in states and ("QUEUED", "preempted") in states
