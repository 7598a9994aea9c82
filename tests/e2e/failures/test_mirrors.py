"""A node's snapshots survive its agent in another node's memory. Only the steps since the last copy are lost."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
OFTEN = {"mirror_share": 0.5}


def agent_killed(step: int) -> dict[str, Any]:
    return {"at": {"rank": 2, "step": step, "phase": "forward"}, "do": "kill_agent"}


def pass_once_mirrored(served: Server, job: Job, gates: Gates, steps: range, at_least: int) -> None:
    """Pause the job at these steps, one after the other, until other nodes have a copy that is new enough."""

    def is_mirrored() -> bool:
        return (served.client.get(job.id).mirrored_step or 0) >= at_least

    for step in steps:
        eventually(lambda step=step: len(gates.ranks_at(step, served.client.get(job.id).generation)) == 4, 120)
        with suppress(AssertionError):
            eventually(is_mirrored, 2)
        gates.open(step)
    assert is_mirrored()


@pytest.mark.slow
def test_a_lost_agents_state_comes_from_the_mirror(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    """Kill the agent twice. The second time, its node was itself restored from a mirror. Nothing is read from disk."""
    first, second = range(3, 7), range(12, 16)
    gates = Gates(tmp_path, *first, *second)
    faults = [agent_killed(9), agent_killed(18)]
    job = served.client.submit(
        spec("mirrored", snapshot=OFTEN, checkpoint={"every_steps": 24}, faults=faults, **gates.parts)
    )
    pass_once_mirrored(served, job, gates, first, 1)
    pass_once_mirrored(served, job, gates, second, 10)
    done = served.client.wait(job.id, timeout_s=240)
    assert_same_result(served, done, control)
    assert [incident.reason for incident in done.incidents] == ["agent_lost"] * 2
    assert {incident.recovery_action for incident in done.incidents} == {"respawn"}
    starts = [formed.start_step for formed in served.client.generations(job.id)]
    assert starts[0] == 0 and 1 <= starts[1] <= 8 and 10 <= starts[2] <= 17
    lost = [incident.steps_lost for incident in done.incidents]
    assert lost == [incident.at_step - start for incident, start in zip(done.incidents, starts[1:], strict=True)]
    assert done.mirrored_step is None, "its memory was released"
