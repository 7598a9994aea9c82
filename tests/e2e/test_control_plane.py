"""The server and the supervisor die; nothing is lost, nothing doubled."""

import threading
import uuid
from collections.abc import Callable
from typing import Any

from house.served import Served, assert_same_result, end, eventually

from regroup.api.schemas import Job

Spec = Callable[..., dict[str, Any]]


def test_kill_9_of_the_server_during_a_run(served: Served, spec: Spec, control: Job) -> None:
    faults = [{"at": {"rank": 1, "step": 12, "phase": "backward"}, "do": "sigkill"}]
    job = served.client.submit(spec("outage", faults=faults))
    eventually(lambda: served.client.get(job.id).step >= 4)
    served.kill()
    # An unfinished request of this moment is repeated with its key once there is a server again.
    key, made = uuid.uuid4().hex, []
    again = threading.Thread(target=lambda: made.append(_submit_until_it_works(served, spec("retried", steps=2), key)))
    again.start()
    served.start()
    again.join(60)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert len(done.incidents) == 1
    numbers = [event.number for event in served.client.events(job.id)]
    assert numbers == list(range(1, len(numbers) + 1))
    steps = [row.step for row in served.client.steps(job.id)]
    assert steps == list(range(1, control.step + 1))
    assert [found.id for found in served.client.jobs(name="retried")] == [made[0]]
    served.client.wait(made[0], timeout_s=240)


def _submit_until_it_works(served: Served, spec: dict[str, Any], key: str) -> str:
    for _ in range(200):
        try:
            first = served.client.submit(spec, idempotency_key=key)
            return served.client.submit(spec, idempotency_key=key).id if first.id else ""
        except Exception:
            continue
    raise AssertionError("no server answered")


def test_kill_9_of_the_supervisor_loses_no_step(served: Served, spec: Spec, control: Job) -> None:
    job = served.client.submit(spec("headless", steps=24))
    eventually(lambda: served.client.get(job.id).step >= 4)
    (supervisor,) = served.processes("ray::SupervisorActor")
    end(supervisor)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert (done.generation, done.incidents) == (1, [])


def test_cancel_ends_everything(served: Served, spec: Spec) -> None:
    job = served.client.submit(spec("cancelled", steps=100000))
    eventually(lambda: served.client.get(job.id).step >= 2)
    assert len(served.processes("ray::NodeAgent")) >= 2, "one agent a node"
    served.client.cancel(job.id)
    done = served.client.wait(job.id, timeout_s=60)
    assert (done.state, done.reason) == ("CANCELLED", "cancelled_by_user")
    eventually(lambda: not served.processes("ray::NodeAgent"), 30)


def test_a_job_without_room_waits_and_says_why(served: Served, spec: Spec) -> None:
    job = served.client.submit(
        spec("wide", layout={"dp": 8}, training={"global_batch": 8, "micro_batch": 1, "sequence": 64, "steps": 2})
    )
    why = eventually(lambda: served.client.why(job.id).conditions and served.client.why(job.id))
    assert why.state == "QUEUED"
    assert "8" in " ".join(condition.message for condition in why.conditions)
    assert served.client.cancel(job.id).state == "CANCELLED"
