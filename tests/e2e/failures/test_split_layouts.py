"""Jobs that split their model by tensors, layers and data at the same time lose ranks, and recover bitwise."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]

STEPS = 22
MODEL = {"dim": 32, "layers": 4, "heads": 2, "vocab_size": 258}
REPLICATED_STAGES = {"dp": 2, "pp": 2, "data_parallel": "ddp", "schedule": "zbv"}
ALL_DIMENSIONS = {"dp": 2, "tp": 2, "pp": 2}


def fault(rank: int, step: int, phase: str = "forward", do: str = "sigkill") -> dict[str, Any]:
    return {"at": {"rank": rank, "step": step, "phase": phase}, "do": do}


def faults(ranks: int) -> list[dict[str, Any]]:
    """Return kills in every phase, of the first rank, of two at once, of a saver, of the store and of the zygote."""
    last = ranks - 1
    return [
        fault(1, 3, "forward"),
        fault(2, 5, "backward"),
        fault(last, 7, "optimizer"),
        fault(1, 9, "snapshot"),
        fault(0, 11),
        fault(2, 13, "backward"),
        fault(last, 13),
        fault(1, 15, do="kill_saver"),
        fault(2, 16, "checkpoint"),
        fault(last, 18, do="kill_store"),
        fault(1, 20, do="kill_zygote"),
    ]


def whole(served: Server, spec: Spec, layout: dict[str, Any]) -> Job:
    """Return the undisturbed run of a layout, with which all its other runs are compared."""
    done = served.run(of_four_blocks(spec("whole", layout=layout, steps=STEPS)))
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    return done


def check_recovery_is_bitwise(
    served: Server, spec: Spec, layout: dict[str, Any], undisturbed: Job, tmp_path: Path
) -> None:
    """Inject all faults. At last, kill an agent that alone has its ranks' state, once there is a checkpoint."""
    injected, gates = faults(len(undisturbed.placement)), Gates(tmp_path, 12, STEPS - 1)
    last = fault(2, STEPS, do="kill_agent")
    parts: dict[str, Any] = {"layout": layout, "steps": STEPS, "snapshot": {"mirror": "off"}, **gates.parts}
    job = served.client.submit(of_four_blocks(spec("disturbed", faults=[*injected, last], **parts)))
    for saved_at, gate in ((8, 12), (16, STEPS - 1)):  # a checkpoint waits for the former one
        eventually(lambda step=saved_at: step in [saved.step for saved in served.client.checkpoints(job.id)], 240)
        gates.open(gate)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, undisturbed)
    savers = [fault for fault in injected if fault["do"] == "kill_saver"]
    at = {fault["at"]["step"] for fault in injected if fault not in savers}
    *died, agent = done.incidents
    assert len(died) >= len(at), "one per step with a kill"
    notes = [event.data["kind"] for event in served.client.events(job.id) if event.type == "note"]
    assert notes.count("saver_died") == len(savers)
    assert {incident.recovery_action for incident in died} == {"respawn"}
    assert all(incident.steps_lost is not None and incident.steps_lost <= 1 for incident in died)
    assert (agent.reason, agent.recovery_action) == ("agent_lost", "disk")
    assert served.client.generations(job.id)[-1].start_step == 16


def of_four_blocks(spec: dict[str, Any]) -> dict[str, Any]:
    # A constant rate does not depend on the length of the job.
    training = {**spec["training"], "schedule": {"name": "constant"}}
    return {**spec, "workload": {**spec["workload"], "model": MODEL}, "training": training}


@pytest.mark.slow
def test_replicated_stages_on_four_ranks(served: Server, spec: Spec, tmp_path: Path) -> None:
    undisturbed = whole(served, spec, REPLICATED_STAGES)
    check_recovery_is_bitwise(served, spec, REPLICATED_STAGES, undisturbed, tmp_path)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with capacity for eight ranks."""
    server = Server(tmp_path_factory.mktemp("wide") / "state", arguments=["--slots-per-node", "4"])
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_on_eight_ranks_in_three_dimensions(wide: Server, spec: Spec, tmp_path: Path) -> None:
    undisturbed = whole(wide, spec, ALL_DIMENSIONS)
    check_recovery_is_bitwise(wide, spec, ALL_DIMENSIONS, undisturbed, tmp_path)


@pytest.mark.slow
def test_a_job_continues_from_a_checkpoint_with_another_layout(served: Server, spec: Spec) -> None:
    begun = served.run(of_four_blocks(spec("begun", layout={"tp": 2, "pp": 2}, steps=16)))
    assert begun.state == "SUCCEEDED", (begun.reason, begun.message, begun.error)
    layout = {"dp": 3, "data_parallel": "zero1"}
    job = served.run(of_four_blocks(spec("carried", layout=layout, resume_from=f"{begun.id}@8")))
    assert (job.state, job.step) == ("SUCCEEDED", 24), (job.reason, job.message, job.error)
    again = {row.step: row.loss for row in served.client.steps(job.id)}
    first = {row.step: row.loss for row in served.client.steps(begun.id)}
    assert min(again) == 9
    assert [again[step] for step in range(9, 17)] == pytest.approx([first[step] for step in range(9, 17)], rel=1e-4)
