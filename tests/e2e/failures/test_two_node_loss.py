"""Two nodes of four lose their memory at once.

If they belong to different pairs, mirrors restore everything. If they are one pair, state that only they had is lost:
the job continues from its newest checkpoint and reports the cost.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from regroup.service.policy.recovery.mirror_pairs import PairingNode, pair_nodes
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, agent_of, end, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.slow
FIRST_GATE, LAST_GATE = 10, 16
"""After the checkpoint of step 8."""
LOST = Expected(
    incidents=(frozenset({"agent_lost"}),), allows_more_incidents=True, recovery_actions=frozenset({"respawn", "disk"}),
    detect_s=6.0,
    total_s=25.0, steps_lost=LAST_GATE - 8,
)  # fmt: skip
"""One or two incidents, depending on when the losses are detected."""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with four nodes of one slot each."""
    server = Server(tmp_path_factory.mktemp("four") / "state", nodes=4, arguments=["--slots-per-node", "1"])
    server.start()
    yield server
    server.down()


@pytest.fixture(scope="module")
def calm(four: Server, spec: Spec) -> Job:
    """The undisturbed run."""
    return four.run(spec("calm"))


@pytest.mark.parametrize("which", ["of different pairs", "of one pair"])
def test_two_agents_at_once(which: str, four: Server, calm: Job, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, *range(FIRST_GATE, LAST_GATE + 1))
    job = four.client.submit(spec("disturbed", snapshot={"mirror_share": 0.5}, **gates.parts))
    for step in range(FIRST_GATE, LAST_GATE):
        eventually(lambda step=step: len(gates.ranks_at(step)) == 4, 120)
        with suppress(AssertionError):
            eventually(lambda: (four.client.get(job.id).mirrored_step or 0) > 8, 2)
        gates.open(step)
    eventually(lambda: len(gates.ranks_at(LAST_GATE)) == 4 and (four.client.get(job.id).mirrored_step or 0) > 8, 60)
    eventually(lambda: [saved.step for saved in four.client.checkpoints(job.id)] == [8], 60)
    mirrored = four.client.get(job.id).mirrored_step
    (first,) = four.client.generations(job.id)
    assert len({place.node_id for place in first.ranks}) == 4
    held_by = pair_nodes([PairingNode(place.node_id) for place in first.ranks])
    one = first.ranks[0].node_id
    other = (
        held_by[one] if which == "of one pair" else next(node for node in held_by if node not in (one, held_by[one]))
    )
    pids = gates.ranks_at(LAST_GATE)
    agents = [agent_of(pids[place.rank]) for place in first.ranks if place.node_id in (one, other)]
    with check_all_invariants(four, job, LOST, calm) as record_fault:
        record_fault("kill_agent")
        for agent in agents:
            end(agent)
        gates.open(LAST_GATE)
        done = four.client.wait(job.id, timeout_s=240)
    incident, formed = done.incidents[-1], four.client.generations(job.id)[-1]
    if which == "of one pair":
        assert (incident.recovery_action, formed.start_step) == ("disk", 8)
    else:
        assert incident.recovery_action == "respawn" and formed.start_step >= mirrored > 8
    assert done.incidents[0].steps_lost == done.incidents[0].at_step - formed.start_step
