"""State that is damaged, or whose holder dies, while a lost node's ranks fetch it from another node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.e2e.failures.test_mirrors import OFTEN, agent_killed, pass_once_mirrored
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, assert_same_result

Spec = Callable[..., dict[str, Any]]
GATES = range(3, 7)


def disturbed(served: Server, spec: Spec, tmp_path: Path, name: str, do: str, save_every: int) -> Job:
    """Run a job whose second node loses its agent, after the first node got a fault for its next transfer."""
    gates = Gates(tmp_path, *GATES)
    faults = [{"at": {"rank": 0, "step": 8, "phase": "forward"}, "do": do}, agent_killed(9)]
    fields = {"snapshot": OFTEN, "checkpoint": {"every_steps": save_every}, "faults": faults}
    job = served.client.submit(spec(name, **fields, **gates.parts))
    pass_once_mirrored(served, job, gates, GATES, 1)
    return served.client.wait(job.id, timeout_s=240)


@pytest.mark.slow
def test_a_damaged_transfer_is_repeated(served: Server, spec: Spec, control: Job, tmp_path: Path) -> None:
    done = disturbed(served, spec, tmp_path, "damaged", "corrupt_transfer", save_every=24)
    assert_same_result(served, done, control)
    assert [incident.recovery_action for incident in done.incidents] == ["respawn"]
    notes = [event for event in served.client.events(done.id) if event.data.get("kind") == "transfer_repeated"]
    assert len(notes) == 1 and "damaged" in notes[0].data["message"]


@pytest.mark.slow
def test_the_death_of_the_holder_is_not_blamed_on_the_node_that_fetches(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    """Check that the second incident names the holder. No memory has the state of the lost ranks any more."""
    done = disturbed(served, spec, tmp_path, "holder", "kill_agent_in_transfer", save_every=24)
    assert_same_result(served, done, control)
    formed = served.client.generations(done.id)
    holder, fetching = (place.node_id for place in formed[0].ranks if place.rank in (0, 2))
    assert [(each.reason, each.node_id) for each in done.incidents] == [
        ("agent_lost", fetching),
        ("agent_lost", holder),
    ]
    assert [each.recovery_action for each in done.incidents] == ["respawn", "disk"]
    assert formed[0].start_step == formed[-1].start_step == 0
