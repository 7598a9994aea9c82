"""The server and the supervisor die. Nothing is lost, nothing is duplicated."""

import http.client
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.local.leftovers import find_processes
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, end, eventually, token_header

Spec = Callable[..., dict[str, Any]]
RANKS = {0, 1, 2, 3}


def test_kill_9_of_the_server_during_a_run(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 6, 18)
    faults = [{"at": {"rank": 1, "step": 12, "phase": "backward"}, "do": "sigkill"}]
    job = served.client.submit(spec("outage", faults=faults, **gates.parts))
    eventually(lambda: served.client.get(job.id).step == 5)
    served.kill()
    gates.open(6)
    # The job loses a rank and recovers without a server.
    eventually(lambda: gates.ranks_at(18, generation=2).keys() == RANKS, 120)
    served.start()
    eventually(lambda: served.client.get(job.id).step == 17)
    found = served.client.get(job.id)
    assert (found.state, found.generation) == ("RUNNING", 2)
    gates.open(18)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert [incident.reason for incident in done.incidents] == ["rank_exit"]
    assert_whole_history(served, done)


@pytest.mark.slow
def test_kill_9_of_the_server_while_a_job_starts(served: Server, spec: Spec, control: Job) -> None:
    job = served.client.submit(spec("early"))
    eventually(lambda: served.client.get(job.id).state in ("PLACING", "STARTING"), every_s=0.01)
    served.kill()
    served.start()
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert (done.generation, done.incidents) == (1, [])
    assert_whole_history(served, done)


def assert_whole_history(served: Server, job: Job) -> None:
    """Check that every event and every step is recorded exactly once."""
    numbers = [event.number for event in served.client.events(job.id)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [row.step for row in served.client.steps(job.id)] == list(range(1, job.step + 1))


def test_kill_9_of_the_server_while_submits_are_in_flight(served: Server, spec: Spec) -> None:
    """Send half of one request, and lose the answer to another. Each creates one job when it is repeated."""
    specs = {name: spec(name, steps=2) for name in (f"half-{uuid.uuid4().hex[:8]}", f"lost-{uuid.uuid4().hex[:8]}")}
    half, lost = specs
    keys = {name: uuid.uuid4().hex for name in specs}
    requests = [begun_submit(served, specs[name], keys[name], whole=name == lost) for name in specs]
    eventually(lambda: list(served.client.jobs(name=lost)))
    served.kill()
    for request in requests:
        request.close()
    served.start()
    assert list(served.client.jobs(name=half)) == []
    for name in specs:
        again = [served.client.submit(specs[name], idempotency_key=keys[name]).id for _ in range(2)]
        assert again == [found.id for found in served.client.jobs(name=name)] * 2
        assert served.client.wait(again[0], timeout_s=240).state == "SUCCEEDED"


def begun_submit(served: Server, spec: dict[str, Any], key: str, *, whole: bool) -> http.client.HTTPConnection:
    """Send a submission, or half of it, without reading the answer."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    body = json.dumps(spec).encode()
    connection.putrequest("POST", "/v1/jobs")
    for name, value in {
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "Idempotency-Key": key,
        **token_header(served.url),
    }.items():
        connection.putheader(name, str(value))
    connection.endheaders(body if whole else body[: len(body) // 2])
    return connection


def test_kill_9_of_the_supervisor_loses_no_step(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 6, 12)
    job = served.client.submit(spec("headless", **gates.parts))
    eventually(lambda: gates.ranks_at(6).keys() == RANKS, 120)
    supervisor = killed_supervisor(served)
    gates.open(6)
    eventually(lambda: gates.ranks_at(12).keys() == RANKS)  # the job trains without a supervisor
    eventually(lambda: set(served.processes("ray::SupervisorActor")) - {supervisor}, 120)
    gates.open(12)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert (done.generation, done.incidents) == (1, [])
    assert_whole_history(served, done)


def test_a_rank_that_dies_while_there_is_no_supervisor_is_replaced_by_the_next_one(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    gates = Gates(tmp_path, 9)
    job = served.client.submit(spec("orphaned", **gates.parts))
    eventually(lambda: gates.ranks_at(9).keys() == RANKS, 120)
    killed_supervisor(served)
    end(gates.ranks_at(9)[2])
    gates.open(9)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    (incident,) = done.incidents
    assert (incident.reason, incident.rank, incident.recovery_action, done.generation) == ("rank_exit", 2, "respawn", 2)
    assert incident.steps_lost in (0, 1)
    assert_whole_history(served, done)


def killed_supervisor(served: Server) -> int:
    """Kill the supervisor, once those of earlier jobs have ended; return its process id."""
    eventually(lambda: len(served.processes("ray::SupervisorActor")) == 1)
    (supervisor,) = served.processes("ray::SupervisorActor")
    end(supervisor)
    return supervisor


def test_cancel_ends_everything(served: Server, spec: Spec) -> None:
    job = served.client.submit(spec("cancelled", steps=100000))
    eventually(lambda: served.client.get(job.id).step >= 2)
    assert len(list(find_processes([job.id]))) >= len(RANKS), "its ranks, and their parents"
    served.client.cancel(job.id)
    done = served.client.wait(job.id, timeout_s=60)
    assert (done.state, done.reason) == ("CANCELLED", "cancelled_by_user")
    eventually(lambda: not list(find_processes([job.id])), 30)


def test_a_job_without_capacity_waits_and_reports_why(served: Server, spec: Spec) -> None:
    job = served.client.submit(
        spec("wide", layout={"dp": 8}, training={"global_batch": 8, "micro_batch": 1, "sequence": 64, "steps": 2})
    )
    why = eventually(lambda: served.client.why(job.id).conditions and served.client.why(job.id))
    assert why.state == "QUEUED"
    assert "8" in " ".join(condition.message for condition in why.conditions)
    assert served.client.cancel(job.id).state == "CANCELLED"
