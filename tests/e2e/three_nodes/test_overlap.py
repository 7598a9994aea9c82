"""A resize forms the next ranks while the present ones train, and survives every failure in that time."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.e2e.three_nodes.test_resize import TOLERANCE, elastic, held_at, resized
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
_GATE = 5


@pytest.fixture(scope="module")
def kept(served: Server, spec: Spec) -> Job:
    """The run of constant size, with which the others are compared."""
    return served.run(elastic(spec, "kept"))


def pids_of(job: Job, generation: int) -> dict[int, int]:
    """Return rank → process, of the live ranks of a generation."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, is_output, name = str((folder / "fd/1").readlink()).partition(f"-{job.id}-g{generation}-rank")
            if is_output:
                found[int(name.split(".")[0])] = int(folder.name)
    return found


def prepared(server: Server, job: Job) -> list[Any]:
    return [event for event in server.client.events(job.id) if event.data.get("kind") == "prepared"]


def resize_at_gate(server: Server, spec: Spec, folder: Path, name: str) -> tuple[Job, Gates]:
    """Start a job of four ranks, and let it wait at a gate until the three ranks of its next size are formed."""
    gates = Gates(folder, _GATE)
    job = server.client.submit({**elastic(spec, name), **gates.parts})
    eventually(lambda: held_at(server, job, gates, _GATE), 120)
    server.client.resize(job.id, dp=3)
    eventually(lambda: prepared(server, job), 60)
    assert len(pids_of(job, 1)) == 4 and len(pids_of(job, 2)) == 3, "both generations exist"
    return job, gates


def test_steps_continue_while_the_next_ranks_are_formed(served: Server, spec: Spec, kept: Job) -> None:
    job = served.client.submit(elastic(spec, "overlaps"))
    with check_all_invariants(served, job, resized(1), kept):
        eventually(lambda: served.client.get(job.id).step >= 2, 120)
        served.client.resize(job.id, dp=3)
        served.client.wait_for_resize(job.id, timeout_s=60)
        served.client.wait(job.id, timeout_s=240)
    (note,) = prepared(served, job)
    assert note.data["next_generation"] == 2 and note.data["ranks"] == 3
    rows = served.client.steps(job.id)
    assert any(row.generation == 1 and row.time_s > note.time_s for row in rows), "the present ranks trained on"
    (incident,) = served.client.get(job.id).incidents
    assert incident.steps_lost == 0 and incident.recovery_action == "resize"


@pytest.mark.slow
def test_a_prepared_rank_dies(served: Server, spec: Spec, kept: Job, tmp_path: Path) -> None:
    job, gates = resize_at_gate(served, spec, tmp_path, "waiter-dies")
    with check_all_invariants(served, job, resized(1), kept):
        before = pids_of(job, 2)
        os.kill(before[1], signal.SIGKILL)
        eventually(lambda: len(pids_of(job, 2)) < 3)
        gates.open(_GATE)
        served.client.wait_for_resize(job.id, timeout_s=60)
        served.client.wait(job.id, timeout_s=240)
    assert [each.world_size for each in served.client.generations(job.id)] == [4, 3]


@pytest.mark.slow
def test_a_rank_dies_while_the_next_ones_wait(served: Server, spec: Spec, kept: Job, tmp_path: Path) -> None:
    job, gates = resize_at_gate(served, spec, tmp_path, "trainer-dies")
    expected = Expected(
        incidents=(frozenset({"rank_exit"}),),
        recovery_actions=frozenset({"shrink"}),
        total_s=60.0,
        steps_lost=1,
        tolerance=TOLERANCE,
    )
    with check_all_invariants(served, job, expected, kept):
        waiting = pids_of(job, 2)
        os.kill(pids_of(job, 1)[2], signal.SIGKILL)
        eventually(lambda: not set(waiting.values()) & set(pids_of(job, 2).values()))
        gates.open(_GATE)
        served.client.wait(job.id, timeout_s=240)
    assert served.client.generations(job.id)[-1].world_size == 3


@pytest.mark.slow
def test_the_supervisor_dies_while_the_next_ranks_wait(served: Server, spec: Spec, kept: Job, tmp_path: Path) -> None:
    job, gates = resize_at_gate(served, spec, tmp_path, "supervisor-dies")
    with check_all_invariants(served, job, resized(1), kept):
        waiting, training = pids_of(job, 2), pids_of(job, 1)
        LocalFaults(served.state).kill_supervisor()
        eventually(lambda: not set(waiting.values()) & set(pids_of(job, 2).values()))
        assert pids_of(job, 1) == training, "the ranks that train were adopted"
        gates.open(_GATE)
        served.client.wait_for_resize(job.id, timeout_s=60)
        served.client.wait(job.id, timeout_s=240)
    assert [each.world_size for each in served.client.generations(job.id)] == [4, 3]
