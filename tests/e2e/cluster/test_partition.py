"""Machines that share nothing but the storage, and lose one another: one is cut off, or heard no more though it hears;
it stands still, and goes on later; it is dead; or packets are late and lost. Whoever is away ends what it runs and
writes nothing, and the job goes on elsewhere as if nothing had been."""

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
pytestmark = [pytest.mark.wires, pytest.mark.slow]

BLOWS = {12: "cut", 28: "unheard", 44: "frozen", 60: "dead"}
"""Step at whose commit the job waits → what then happens to one of its machines."""
THAWED_AT, STEPS = 70, 72
"""What stood still goes on while the job trains elsewhere; a node that has ended what it ran may be used again, so
there must be nothing left to replace."""
LOST = Expected(
    incidents=(frozenset({"agent_lost", "node_lost"}),) * len(BLOWS), recovery_actions=frozenset({"spare"}),
    detect_s=6.0,
    total_s=30.0, steps_lost=16,
)  # fmt: skip
"""Agents are started on another node, and a mirror is not of every step."""
BAD_AT, STALLED_AT = 12, 20
PARTED_AT, SHORT_STEPS = 12, 24
PARTED = Expected(
    incidents=(frozenset({"hang"}),), recovery_actions=frozenset({"spare"}), detect_s=12.0, total_s=30.0, steps_lost=6,
)  # fmt: skip
"""Ten seconds until it is a hang, some until links are tried, and the start of agents on another node, which is
restored from a mirror."""
FENCED_WITHIN_S = 120.0
"""A node whose raylet has not reached the cluster's head for a minute ends; that packets go nowhere it learns after
20 s (`ray_environment`). Ranks alone would end at their lease, ten minutes after the last word of a supervisor."""
BAD_FOR_S, STALLED_FOR_S = 30.0, 8.0
"""Connections stand still for longer than the 5 s after which an agent that says nothing is lost."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Iterator[Cluster]:
    """A control machine, two for training and one to spare for each that is lost; all see the data of the jobs. What
    is lost stays so: that test comes last."""
    folder, addresses = tmp_path_factory.mktemp("machines"), (*TRAINING, *SPARES[: len(BLOWS)])
    with no_process_remains(), cluster(folder, addresses, has_wires=True) as made:
        shutil.copytree(text, made.shared / "text")
        yield made


def test_packets_that_are_late_and_lost_cost_time_and_nothing_else(machines: Cluster, spec: Spec) -> None:
    calm = _calm(machines, spec, SHORT_STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, BAD_AT, STALLED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "struck", **gates.parts})
    with check_all_invariants(machines, job, Expected(), control):
        _worsens_and_stalls(machines, job, gates)
        machines.client.wait(job.id, timeout_s=240)


def _worsens_and_stalls(machines: Cluster, job: Job, gates: Gates) -> None:
    eventually(lambda: gates.ranks_at(BAD_AT).keys() == {0, 1, 2, 3}, 120)
    wires = [wire for place in machines.client.get(job.id).placement if (wire := _at(machines, place.address).wire)]
    for wire in wires:
        wire.worsen(loss=0.025, delay_s=0.05)  # two wires there and two back: 5 % each way, 200 ms in all
    gates.open(BAD_AT)
    time.sleep(BAD_FOR_S)  # the fault lasts so long
    for wire in wires:
        wire.repair()
    eventually(lambda: gates.ranks_at(STALLED_AT).keys() == {0, 1, 2, 3}, 120)
    wires[-1].cut_streams()
    gates.open(STALLED_AT)
    time.sleep(STALLED_FOR_S)  # and this one so long
    wires[-1].repair()


def test_machines_that_only_do_not_reach_each_other_are_parted(machines: Cluster, spec: Spec) -> None:
    """Both are heard of, and nobody died: ranks wait for each other."""
    calm = _calm(machines, spec, SHORT_STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, PARTED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "struck", **gates.parts})
    with check_all_invariants(machines, job, PARTED, control):
        _held(machines, job, gates, PARTED_AT, 1)
        addresses = dict.fromkeys(place.address for place in machines.client.get(job.id).placement)
        one, other = [_at(machines, address) for address in addresses]
        assert one.wire is not None
        one.wire.cut_from(other.address)
        gates.open(PARTED_AT)
        done = machines.client.wait(job.id, timeout_s=240)
    told = [event.data for event in machines.client.events(done.id) if event.data.get("fault") == "link"]
    nodes = {each["node"] for each in told}
    assert len(nodes) == 2, "nobody can tell whose fault it is"
    left = {place.address for place in done.placement}
    assert len(left) == 2 and len(left & {one.address, other.address}) == 1
    assert _written_late(machines, done) == []
    one.wire.repair()
    for node in nodes:
        machines.client.uncordon(node, reason="mended")


def test_machines_are_lost_one_after_the_other_and_the_job_goes_on(machines: Cluster, spec: Spec) -> None:
    calm = _calm(machines, spec, STEPS)
    control = machines.submit(calm)
    gates = _gates(machines, *BLOWS, THAWED_AT)
    job = machines.client.submit({**copy.deepcopy(calm), "name": "struck", **gates.parts})
    lost: dict[str, tuple[Machine, float]] = {}
    with check_all_invariants(machines, job, LOST, control) as fell:
        for attempt, (step, blow) in enumerate(BLOWS.items(), 1):
            _held(machines, job, gates, step, attempt)
            victim = _at(machines, machines.client.get(job.id).placement[-1].address)
            assert victim.address not in {machine.address for machine, _ in lost.values()}
            lost[blow] = victim, time.monotonic()
            fell("kill_node" if blow == "dead" else "freeze_node")
            _strike(victim, blow)
            gates.open(step)
        eventually(lambda: gates.ranks_at(THAWED_AT, len(BLOWS) + 1).keys() == {0, 1, 2, 3}, 120)
        thawed = lost["frozen"][0]
        processes.send(thawed.processes(), signal.SIGCONT)
        eventually(lambda: not _of_the_job(thawed), FENCED_WITHIN_S)
        gates.open(THAWED_AT)
        done = machines.client.wait(job.id, timeout_s=240)
        for victim, struck_s in lost.values():
            assert victim.address not in {place.address for place in done.placement}
            left_s = FENCED_WITHIN_S - (time.monotonic() - struck_s)
            eventually(lambda victim=victim: not _of_the_job(victim), max(1.0, left_s))
    assert _written_late(machines, done) == []


def _calm(machines: Cluster, spec: Spec, steps: int) -> dict[str, Any]:
    made = spec("calm", steps=steps, snapshot={"mirror_share": 0.5})
    made["workload"]["data"] = {"train": [str(machines.shared / "text")]}
    return made


def _gates(machines: Cluster, *steps: int) -> Gates:
    return Gates(Path(tempfile.mkdtemp(prefix="gates-", dir=machines.shared)), *steps)


def _held(machines: Cluster, job: Job, gates: Gates, step: int, generation: int) -> None:
    """Wait until all ranks are before the commit of a step, with a mirror of one that this generation did."""
    eventually(lambda: gates.ranks_at(step, generation).keys() == {0, 1, 2, 3}, 120)
    formed = [event for event in machines.client.events(job.id) if event.type == "generation"]
    assert [event.generation for event in formed] == list(range(1, generation + 1))

    def is_mirrored() -> bool:
        mirrored_step = machines.client.get(job.id).mirrored_step
        return mirrored_step is not None and mirrored_step > formed[-1].data["start_step"]

    eventually(is_mirrored, 60)


def _at(machines: Cluster, address: str | None) -> Machine:
    return next(machine for machine in machines.training if machine.address == address)


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


def _written_late(machines: Cluster, done: Job) -> list[str]:
    """Files of checkpoints by generations that were over."""
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
    """Agents and ranks that are left there: they alone have memory files of ours."""
    return [
        f"{process.pid} {process.name}"
        for process in machine.processes()
        if any("memfd:regroup-" in target for target in processes.open_files(process))
    ]
