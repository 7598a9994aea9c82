"""A user suspends a job. It saves its last step, releases everything, and ends with the undisturbed result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]


@pytest.mark.slow
def test_a_job_is_suspended_and_resumed_and_loses_no_step(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 3)
    job = served.client.submit(spec("rests", **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    served.client.suspend(job.id, reason="for the night")
    eventually(lambda: any(e.data.get("kind") == "leaving" for e in served.client.events(job.id)), 60)
    gates.open(3)
    rests = served.client.wait_for_suspend(job.id, timeout_s=60)
    assert (rests.state, rests.message) == ("SUSPENDED", "for the night")
    other = served.run(spec("other", steps=4))
    assert other.state == "SUCCEEDED", (other.reason, other.message, other.error)
    assert served.client.resume(job.id).state == "QUEUED"
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    (incident,) = done.incidents
    assert (incident.reason, incident.recovery_action, incident.steps_lost) == ("suspended", "disk", 0)
    states = [(e.data["to"], e.data["reason"]) for e in served.client.events(job.id) if e.type == "state"]
    assert [each for each in states if each[1] in ("suspended", "resumed")] == [
        ("RESIZING", "suspended"), ("QUEUED", "suspended"), ("SUSPENDED", "suspended"), ("QUEUED", "resumed"),
    ]  # fmt: skip
    why = served.client.why(job.id)
    assert why.seconds["suspended"] > 0
