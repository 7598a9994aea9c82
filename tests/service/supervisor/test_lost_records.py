"""Supervisors that start without the records or the agents of their predecessors."""

import asyncio
import time
from typing import Any

from regroup.service.domain.states import JobState
from regroup.workers.contract.messages import Join, Joined, Restored, StepRow
from tests.support.doubles.supervised_job import SPEC, FakeNodes, Rig

LOST: dict[str, Any] = {
    "id": "lost", "revision": 1, "cause": "Ray failed", "reason": "cluster_lost", "generation": 4, "at_step": 5,
    "times": {"fault_s": 100.0, "seen_s": 180.0, "dead_s": 181.0}, "evidence_bytes": 0,
}  # fmt: skip


class WaitingNodes(FakeNodes):
    """Agents whose ranks wait in generation 1 after the first step."""

    async def _rank(self, node: str, join: Join) -> None:
        if join.generation > 1:
            await super()._rank(node, join)
            return
        for message in (Joined(join.rank, 1, 1.0), Restored(join.rank, 1, 0, 2.0)):
            self._report(node, message)
        if join.rank == 0:
            self._report(node, StepRow(1, 1, 3.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0))


async def newest(rig: Rig) -> dict[str, dict[str, Any]]:
    return {data["id"]: data for data in await rig.events("incident")}


async def test_a_job_whose_cluster_was_lost_completes_the_stored_incident() -> None:
    rig = Rig(FakeNodes({}), generations=[(1, 0), (4, 2)], incidents=[LOST])
    await rig.end()
    incident = (await newest(rig))["lost"]
    assert (incident["next_generation"], incident["recovery_action"], incident["steps_lost"]) == (5, "disk", 5)
    assert {"decide", "form", "restore", "first_step", "total"} <= incident["durations"].keys()
    (started,) = await rig.events("generation")
    assert (started["number"], started["cause"]) == (5, "cluster_lost")
    assert [data["state"] for data in await rig.events("state")] == [JobState.RUNNING, JobState.SUCCEEDED]


async def test_charges_survive_the_loss_of_the_cluster() -> None:
    spec = {**SPEC, "recovery": {"budgets": {"node_loss": 1}}}
    before = {**LOST, "id": "before", "generation": 2, "at_step": 4, "times": {**LOST["times"], "first_step_s": 120.0}}

    def recent(incident: dict[str, Any]) -> dict[str, Any]:
        return {**incident, "times": {name: time.time() - 200 + at_s for name, at_s in incident["times"].items()}}

    rig = Rig(FakeNodes({}), spec, generations=[(1, 0), (4, 2)], incidents=[recent(before), recent(LOST)])
    await rig.end()
    last = (await rig.events("state"))[-1]
    assert (last["state"], last["reason"]) == (JobState.FAILED, "budget_exhausted")


async def test_agents_that_are_lost_while_no_supervisor_runs_are_an_incident() -> None:
    nodes = WaitingNodes({})
    rig = Rig(nodes)
    async with asyncio.timeout(10):
        while rig.life.status().state != JobState.RUNNING:  # noqa: ASYNC110  (a state sets no event)
            await asyncio.sleep(0)
    rig.running.cancel()
    await asyncio.gather(rig.running, return_exceptions=True)
    for node in ("node-0", "node-1"):
        nodes._forget(node)
    rig.begin()
    await rig.end()
    (incident,) = (await newest(rig)).values()
    assert (incident["reason"], incident["generation"], incident["next_generation"]) == ("agent_lost", 1, 2)
    assert incident["recovery_action"] == "disk" and "first_step_s" in incident["times"]
    assert [data["cause"] for data in await rig.events("generation")] == ["start", "agent_lost"]
