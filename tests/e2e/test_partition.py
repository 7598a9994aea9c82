"""Machines that share nothing but the storage, and lose one another: one is cut off, or heard no more though it hears;
it stands still, and goes on later; it is dead; or packets are late and lost. Whoever is away ends what it runs and
writes nothing, and the job goes on elsewhere as if nothing had been."""

import copy
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from house.gates import Gates
from house.namespaces import SPARE, TRAINING, Cluster, Machine, cluster
from house.served import eventually

from regroup.api.schemas import Job
from regroup.service.runtime import processes
from regroup.service.states import JobState

pytestmark = [pytest.mark.wires, pytest.mark.slow]

GATE, STEPS = 16, 24
FENCED_WITHIN_S = 100.0
"""A node whose raylet has not reached the cluster's head for a minute ends."""
BAD_FOR_S = 30.0


@pytest.fixture
def machines(tmp_path: Path, no_leaks: None) -> Iterator[Cluster]:
    """A control machine, two for training and one to spare."""
    with cluster(tmp_path, (*TRAINING, SPARE), has_wires=True) as made:
        yield made


@pytest.fixture
def calm(machines: Cluster, text: Path, spec: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A job whose data all machines see."""
    shutil.copytree(text, machines.shared / "text")
    made = spec("calm", steps=STEPS, snapshot={"mirror_share": 0.5})
    made["workload"]["data"] = {"train": [str(machines.shared / "text")]}
    return made


@pytest.mark.parametrize("blow", ["cut", "unheard", "frozen", "dead"])
def test_a_node_that_is_lost_ends_itself_and_the_job_goes_on(
    blow: str, machines: Cluster, calm: dict[str, Any]
) -> None:
    control = machines.submit(calm)
    job, gates = _held(machines, calm)
    victim = next(machine for machine in machines.training if machine.address == job.placement[-1].address)
    struck_s = time.time()
    _strike(victim, blow)
    gates.open(GATE)
    done = _ended(machines, job)
    if blow == "frozen":
        processes.send(victim.processes(), signal.SIGCONT)
    _assert_same(machines, done, control)
    (incident,) = done.incidents
    assert incident.reason in ("agent_lost", "node_lost") and incident.rung == "spare"
    assert incident.durations["detect"] <= 6.0
    assert victim.address not in {place.address for place in done.placement}
    left_s = FENCED_WITHIN_S - (time.time() - struck_s)
    eventually(lambda: not _of_the_job(victim), max(1.0, left_s))
    second = next(event for event in machines.events(done) if event.type == "generation" and event.generation == 2)
    late = [
        path.name
        for path in (machines.shared / "storage/jobs" / job.id / "checkpoints").glob("*.gen-1/*")
        if path.stat().st_mtime > second.time_s
    ]
    assert late == [], "written by a generation that was over"


def test_packets_that_are_late_and_lost_cost_time_and_nothing_else(machines: Cluster, calm: dict[str, Any]) -> None:
    control = machines.submit(calm)
    job, gates = _held(machines, calm)
    for machine in machines.training:
        assert machine.wire is not None
        machine.wire.worsen(loss=0.025, delay_s=0.05)  # two wires there and two back: 5 % each way, 200 ms in all
    gates.open(GATE)
    time.sleep(BAD_FOR_S)  # the fault lasts so long
    for machine in machines.training:
        assert machine.wire is not None
        machine.wire.mend()
    done = _ended(machines, job)
    _assert_same(machines, done, control)
    assert [incident.reason for incident in done.incidents] == [], "nothing was lost but time"


def _strike(victim: Machine, blow: str) -> None:
    assert victim.wire is not None
    match blow:
        case "cut":
            victim.wire.cut()
        case "unheard":
            victim.wire.cut("out")
        case "frozen":
            processes.send(victim.processes(), signal.SIGSTOP)
        case _:
            processes.kill(victim.processes())


def _held(machines: Cluster, calm: dict[str, Any]) -> tuple[Job, Gates]:
    """A job that waits before the commit of a step, with a mirror of an earlier one."""
    folder = machines.shared / "gates"
    folder.mkdir()
    gates = Gates(folder, GATE)
    job = machines.begin({**copy.deepcopy(calm), "name": "struck", **gates.parts})
    eventually(lambda: gates.ranks_at(GATE).keys() == {0, 1, 2, 3}, 120)
    eventually(lambda: machines.job(job.id).mirrored_step is not None, 60, every_s=1)
    return machines.job(job.id), gates


def _ended(machines: Cluster, job: Job) -> Job:
    return eventually(
        lambda: found if JobState((found := machines.job(job.id)).state).is_terminal else None, 240, every_s=2
    )


def _assert_same(machines: Cluster, done: Job, control: Job) -> None:
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert done.digest.parameters and done.digest == control.digest
    ledger = machines.ledger(done)
    assert ledger.exact, ledger.problems


def _of_the_job(machine: Machine) -> list[str]:
    """Agents and ranks that are left there: they alone have memory files of ours."""
    return [
        f"{process.pid} {process.name}"
        for process in machine.processes()
        if any("memfd:regroup-" in target for target in processes.files(process))
    ]
