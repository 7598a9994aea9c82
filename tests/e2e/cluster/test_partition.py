"""Machines that share only the storage lose contact with each other.

A machine is cut off, or receives but cannot send, or freezes and resumes later, or dies, or loses and delays packets.
A lost machine ends its processes and writes nothing. The job continues elsewhere with the undisturbed result.
"""

import copy
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from regroup.service.local import processes
from tests.support.checks.leaks import no_process_remains
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.machines.namespaces import SPARES, TRAINING, Cluster, Machine, cluster
from tests.support.servers.regroup_server import eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.wires, pytest.mark.slow, pytest.mark.alone]

FAULTS = {12: "cut", 28: "mute", 44: "frozen", 60: "dead"}
"""Step at whose commit the job waits → fault that one of its machines then has."""
THAWED_AT, STEPS = 70, 72
"""The frozen machine resumes while the job trains elsewhere. A node that has ended its processes may be used again, so
no fault may follow that needs a replacement."""
LOST = Expected(
    incidents=(frozenset({"agent_lost", "node_lost"}),) * len(FAULTS), recovery_actions=frozenset({"spare"}),
    detect_s=6.0,
    total_s=30.0, steps_lost=16,
)  # fmt: skip
"""Agents start on another node, and a mirror does not cover every step."""
LOSSY_AT, STALLED_AT = 12, 20
PARTED_AT, SHORT_STEPS = 12, 24
PARTED = Expected(
    incidents=(frozenset({"hang"}),), recovery_actions=frozenset({"spare"}), detect_s=12.0, total_s=30.0, steps_lost=6,
)  # fmt: skip
"""Ten seconds until detection as a hang, some for the link test, and the start of agents on another node, which
restores from a mirror."""
FENCED_WITHIN_S = 120.0
"""A raylet that has not reached the cluster's head for a minute ends. It detects lost packets after 20 s
(`ray_environment`). Ranks alone would end at their lease, ten minutes after the last message of a supervisor."""
LOSSY_FOR_S, STALLED_FOR_S = 30.0, 8.0
"""Connections stall for longer than the 5 s after which a silent agent counts as lost."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Iterator[Cluster]:
    """A control machine, two training machines, and a spare for each one that is lost. All see the data of the jobs.

    Lost machines stay lost, so the test that loses them comes last.
    """
    folder, addresses = tmp_path_factory.mktemp("machines"), (*TRAINING, *SPARES[: len(FAULTS)])
    with no_process_remains(), cluster(folder, addresses, has_wires=True) as made:
        shutil.copytree(text, made.shared / "text")
        yield made


def test_late_and_lost_packets_only_cost_time(machines: Cluster, spec: Spec) -> None:
    calm = _calm(machines, spec, SHORT_STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, LOSSY_AT, STALLED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "disturbed", **gates.parts})
    with check_all_invariants(machines, job, Expected(), control):
        _worsen_and_stall(machines, job, gates)
        machines.client.wait(job.id, timeout_s=240)


def _worsen_and_stall(machines: Cluster, job: Job, gates: Gates) -> None:
    eventually(lambda: gates.ranks_at(LOSSY_AT).keys() == {0, 1, 2, 3}, 120)
    wires = [wire for place in machines.client.get(job.id).placement if (wire := _at(machines, place.address).wire)]
    for wire in wires:
        wire.worsen(loss=0.025, delay_s=0.05)  # two wires in each direction: 5 % per direction, 200 ms in total
    gates.open(LOSSY_AT)
    time.sleep(LOSSY_FOR_S)  # duration of the fault
    for wire in wires:
        wire.repair()
    eventually(lambda: gates.ranks_at(STALLED_AT).keys() == {0, 1, 2, 3}, 120)
    wires[-1].cut_streams()
    gates.open(STALLED_AT)
    time.sleep(STALLED_FOR_S)  # duration of this one
    wires[-1].repair()


def test_machines_that_cannot_reach_each_other_are_separated(machines: Cluster, spec: Spec) -> None:
    """Cut the link between two machines. Both send heartbeats, and no process died, but ranks wait for each other."""
    calm = _calm(machines, spec, SHORT_STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, PARTED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "disturbed", **gates.parts})
    with check_all_invariants(machines, job, PARTED, control):
        _wait_at_gate(machines, job, gates, PARTED_AT, 1)
        addresses = dict.fromkeys(place.address for place in machines.client.get(job.id).placement)
        one, other = [_at(machines, address) for address in addresses]
        assert one.wire is not None
        one.wire.cut_from(other.address)
        gates.open(PARTED_AT)
        done = machines.client.wait(job.id, timeout_s=240)
    reported = [event.data for event in machines.client.events(done.id) if event.data.get("fault") == "link"]
    nodes = {each["node"] for each in reported}
    assert len(nodes) == 2, "either node may be at fault"
    left = {place.address for place in done.placement}
    assert len(left) == 2 and len(left & {one.address, other.address}) == 1
    assert _written_late(machines, done) == []
    one.wire.repair()
    for node in nodes:
        machines.client.uncordon(node, reason="repaired")


def test_the_job_continues_when_machines_are_lost_one_after_the_other(machines: Cluster, spec: Spec) -> None:
    calm = _calm(machines, spec, STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, *FAULTS, THAWED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "disturbed", **gates.parts})
    lost: dict[str, tuple[Machine, float]] = {}
    with check_all_invariants(machines, job, LOST, control) as record_fault:
        for attempt, (step, fault) in enumerate(FAULTS.items(), 1):
            _wait_at_gate(machines, job, gates, step, attempt)
            victim = _at(machines, machines.client.get(job.id).placement[-1].address)
            assert victim.address not in {machine.address for machine, _ in lost.values()}
            lost[fault] = victim, time.monotonic()
            record_fault("kill_node" if fault == "dead" else "freeze_node")
            _inject(victim, fault)
            gates.open(step)
        eventually(lambda: gates.ranks_at(THAWED_AT, len(FAULTS) + 1).keys() == {0, 1, 2, 3}, 120)
        thawed = lost["frozen"][0]
        processes.send(thawed.processes(), signal.SIGCONT)
        eventually(lambda: not _of_the_job(thawed), FENCED_WITHIN_S)
        gates.open(THAWED_AT)
        done = machines.client.wait(job.id, timeout_s=240)
        for victim, injected_s in lost.values():
            assert victim.address not in {place.address for place in done.placement}
            left_s = FENCED_WITHIN_S - (time.monotonic() - injected_s)
            eventually(lambda victim=victim: not _of_the_job(victim), max(1.0, left_s))
    assert _written_late(machines, done) == []


def _calm(machines: Cluster, spec: Spec, steps: int) -> dict[str, Any]:
    made = spec("calm", steps=steps, snapshot={"mirror_share": 0.5})
    made["workload"]["data"] = {"train": [str(machines.shared / "text")]}
    return made


def _gates(machines: Cluster, *steps: int) -> Gates:
    return Gates(Path(tempfile.mkdtemp(prefix="gates-", dir=machines.shared)), *steps)


def _wait_at_gate(machines: Cluster, job: Job, gates: Gates, step: int, generation: int) -> None:
    """Wait until all ranks are at the commit of a step, and a step of this generation is mirrored."""
    eventually(lambda: gates.ranks_at(step, generation).keys() == {0, 1, 2, 3}, 120)
    formed = [event for event in machines.client.events(job.id) if event.type == "generation"]
    assert [event.generation for event in formed] == list(range(1, generation + 1))

    def is_mirrored() -> bool:
        mirrored_step = machines.client.get(job.id).mirrored_step
        return mirrored_step is not None and mirrored_step > formed[-1].data["start_step"]

    eventually(is_mirrored, 60)


def _at(machines: Cluster, address: str | None) -> Machine:
    return next(machine for machine in machines.training if machine.address == address)


def _inject(victim: Machine, fault: str) -> None:
    assert victim.wire is not None
    match fault:
        case "cut":
            victim.wire.cut()
        case "mute":
            victim.wire.cut("out")
        case "frozen":
            processes.send(victim.processes(), signal.SIGSTOP)
        case _:
            processes.kill(victim.processes())


def _written_late(machines: Cluster, done: Job) -> list[str]:
    """Return files of checkpoints that a generation wrote after its end."""
    folder = machines.shared / "storage/jobs" / done.id / "checkpoints"
    formed_s = {
        event.generation: event.time_s for event in machines.client.events(done.id) if event.type == "generation"
    }
    return [
        str(path.relative_to(folder))
        for number, time_s in formed_s.items()
        for path in folder.glob(f"*.gen-{number - 1}/*")
        if path.stat().st_mtime > time_s
    ]


def _of_the_job(machine: Machine) -> list[str]:
    """Return the agents and ranks that remain there: only they have memory files of regroup."""
    return [
        f"{process.pid} {process.name}"
        for process in machine.processes()
        if any("memfd:regroup-" in target for target in processes.open_files(process))
    ]
