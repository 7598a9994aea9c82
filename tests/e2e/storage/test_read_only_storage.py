"""An agent dies while durable storage is read-only. Memory has the whole state, so the job continues from there."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.machines.small_disk import needs_root, small_disk
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

pytestmark = pytest.mark.slow
FIRST, LAST = range(3, 8), 16
"""Steps at which the job waits for its mirror, and the step at which it waits after the recovery."""


def remount(storage: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(storage)], check=True)


@needs_root
def test_the_job_continues_from_memory_and_storage_is_a_condition(
    served: Server, spec: Callable[..., dict[str, Any]], control: Job, tmp_path: Path
) -> None:
    client, gates = served.client, Gates(tmp_path, *FIRST, LAST)
    parts: dict[str, Any] = {
        "snapshot": {"mirror_share": 0.5},
        "checkpoint": {"every_steps": 24},
        "faults": [{"at": {"rank": 2, "step": 10, "phase": "forward"}, "do": "kill_agent"}],
    }
    with small_disk(tmp_path / "storage", "64m") as storage:
        job = client.submit(spec("read-only", storage_uri=storage.as_uri(), **parts, **gates.parts))
        for step in FIRST:
            eventually(lambda step=step: len(gates.ranks_at(step)) == 4, 120)
            with suppress(AssertionError):
                eventually(lambda: client.get(job.id).mirrored_step, 2)
            if step == FIRST[-1]:
                assert client.get(job.id).mirrored_step
                remount(storage, "ro")
            gates.open(step)
        eventually(lambda: len(gates.ranks_at(LAST, generation=2)) == 4, 120)
        assert [formed.restore["kind"] for formed in client.generations(job.id)] == ["none", "memory"]
        unwell = eventually(lambda: storage_conditions(client.get(job.id)), 60)
        assert "Read-only file system" in unwell[0]
        remount(storage, "rw")
        gates.open(LAST)
        done = client.wait(job.id, timeout_s=240)
        assert_same_result(served, done, control)
        (incident,) = done.incidents
        assert (incident.reason, incident.recovery_action) == ("agent_lost", "respawn")
        assert [saved.step for saved in client.checkpoints(job.id)] == [24]


def storage_conditions(job: Job) -> list[str]:
    return [each.message for each in job.conditions if (each.type, each.reason) == ("NodeWell", "storage")]
