"""Resize of a running job. Its ranks stop at an agreed step, and the new ranks resume from their state in memory."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from regroup.workers.contract.agent_records import ShardHolder
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Done, Exited, Join, Joined, Restore, Restored, StepRow
from tests.support.doubles.planned_job import PlannedRig, TrainingNodes
from tests.support.doubles.supervised_job import SPEC
from tests.support.inputs.sync_records import intents

_STEP_S = 0.005
ELASTIC = {**SPEC, "layout": {"dp": {"min": 1, "target": 2, "max": 4}}}


def member(number: int, ranks: int) -> dict[str, Any]:
    return {"node_id": f"node-{number}", "name": f"n{number}", "address": "h", "ranks": ranks}


class Ranks(TrainingNodes):
    """TrainingNodes with several ranks each."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: dict[str, list[HeldShard]] = {}
        """Node → shards in its memory."""
        self.released: dict[str, bool] = {}
        """Node that released its restore source → whether it keeps mirrors."""
        self.restores: dict[int, Restore] = {}
        """Generation → source of its state."""

    def _list_shards(self, node: str) -> list[HeldShard]:
        return self.sets.get(node, [])

    def _release_restore_source(self, node: str, has_mirrors: bool) -> None:
        self.released[node] = has_mirrors

    def _forget(self, node_id: str) -> None:
        super()._forget(node_id)
        self.sets.pop(node_id, None)

    def _form_ranks(
        self, node: str, joins: Sequence[Join], devices: Sequence[int], holders: Sequence[ShardHolder]
    ) -> None:
        generation = joins[0].generation
        self.restores[generation] = joins[0].restore
        self.fetched.append((node, generation, holders))
        self.members.setdefault(generation, {}).update({f"{node}/{join.rank}": join.rank for join in joins})
        self.generation[node], self.reported[node] = generation, []
        self.running[node] = [join.rank for join in joins]
        for join in joins:
            self.tasks.append(asyncio.get_running_loop().create_task(self._rank(node, join)))

    async def _rank(self, node: str, join: Join) -> None:
        rank, generation, step = join.rank, join.generation, join.restore.step
        self._report(node, Joined(rank, generation, 1.0))
        self._report(node, Restored(rank, generation, step, 2.0))
        while step < self.stops.get(generation, (10**9, False))[0]:
            await asyncio.sleep(_STEP_S)
            if generation in self.ended or node in self.dead:
                return
            step += 1
            self.step = max(self.step, step)
            if rank == 0:
                self._report(node, StepRow(generation, step, time.time(), 0.1, 1.0, 8, 4, 0, 0.1, 1.0))
                mine: dict[str, list[HeldShard]] = {}
                for place, local in self.members[generation].items():
                    held = HeldShard(local, join.world_size, generation, step, str(join.layout))
                    mine.setdefault(place.split("/")[0], []).append(held)
                self.sets |= mine
        self._report(node, Done(rank, generation, step, stopped=True))
        self._report(node, Exited(rank, generation, 0, time.time()))


class Resized(PlannedRig):
    def __init__(self) -> None:
        super().__init__(ELASTIC)

    def resize(self, nodes: list[dict[str, Any]], *, leaving: Mapping[str, str] | None = None, **layout: int) -> None:
        resize = {"leaving": leaving or {}, "why": "resized on request", "noticed_s": time.time(), "deadline_s": None,
                  "reason": "resized", "sizes": {"before": {"dp_shard": 2}, "after": layout}}  # fmt: skip
        split = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1, **layout}
        self.life.set_intents(intents(nodes=nodes, layout=split, change=resize))


@pytest.fixture
async def rig() -> AsyncGenerator[Resized]:
    made = Resized()
    made.running.cancel()
    await asyncio.gather(made.running, return_exceptions=True)
    made.nodes = Ranks()
    made.begin()
    yield made
    for task in (made.running, *made.nodes.tasks):
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("nodes", "dp", "fetched"),
    [
        ([member(0, 2), member(1, 2)], 4, {"node-0": {1: "node-1"}, "node-1": {0: "node-0"}}),
        ([member(0, 2), member(1, 1)], 3, {"node-0": {1: "node-1"}, "node-1": {0: "node-0"}}),
        ([member(0, 1)], 1, {"node-0": {1: "node-1"}}),
        (
            [member(0, 1), member(1, 1), member(2, 1)], 3,
            {"node-0": {1: "node-1"}, "node-1": {0: "node-0"}, "node-2": {0: "node-0", 1: "node-1"}},
        ),
    ],
    ids=["grows within its nodes", "2+1 ranks", "shrinks to one node", "grows onto a new node"],
)  # fmt: skip
async def test_a_resized_job_continues_without_losing_a_step(
    rig: Resized, nodes: list[dict[str, Any]], dp: int, fetched: dict[str, dict[int, str]]
) -> None:
    await rig.wait_for_steps()
    rig.resize(nodes, dp_shard=dp)
    relocated = await rig.relocate()
    gone = {"node-1"} - {node["node_id"] for node in nodes}
    assert relocated.former == dict.fromkeys(gone, "node-1") and relocated.layout.dp_shard == dp
    last, save = rig.nodes.stops[1]
    assert not save
    await rig.wait_for_steps(generation=2)
    held = {
        node: {rank: each.address.host for each in found for rank in each.ranks}
        for node, generation, found in rig.nodes.fetched
        if generation == 2
    }
    assert held == fetched, "each node knows who has the shards of the former ranks"
    assert isinstance(rig.nodes, Ranks)
    restore = rig.nodes.restores[2]
    assert (restore.source, restore.step, restore.generation, restore.world_size) == ("memory", last, 1, 2)
    (formed,) = [data for data in rig.events("generation") if data["number"] == 2]
    assert (formed["start_step"], formed["cause"], formed["world_size"]) == (last, "resized", dp)
    assert formed["layout"]["dp_shard"] == dp
    incident = rig.events("incident")[-1]
    assert (incident["reason"], incident["recovery_action"], incident["at_step"], incident["steps_lost"]) == (
        "resized", "resize", last, 0,
    )  # fmt: skip
    assert rig.states()[1:] == [("RUNNING", "first_step"), ("RESIZING", "resized"), ("RUNNING", "first_step")]
    starts = [call for call in rig.nodes.calls if call[1] == "kill"]
    assert not [node for node, _ in starts if node in {each["node_id"] for each in nodes}], "no agent is restarted"


async def test_the_restore_source_is_released_after_the_first_own_snapshots(rig: Resized) -> None:
    await rig.wait_for_steps()
    rig.resize([member(0, 2), member(1, 1)], dp_shard=3)
    await rig.relocate()
    nodes = rig.nodes
    assert isinstance(nodes, Ranks)
    await rig.until(lambda: nodes.released == {"node-0": True, "node-1": True})
    assert nodes.step >= nodes.stops[1][0] + 2


async def test_a_restarted_supervisor_uses_the_size_of_the_last_change(rig: Resized) -> None:
    """Start with the size of the start configuration, and find a resize within the same nodes."""
    await rig.wait_for_steps()
    initial = rig.payload
    rig.resize([member(0, 2), member(1, 1)], dp_shard=3)
    relocated = await rig.relocate()
    await rig.wait_for_steps(generation=2)
    rig.running.cancel()
    await asyncio.gather(rig.running, return_exceptions=True)
    rig.payload = initial
    rig.begin()
    again = await asyncio.wait_for(rig.running, 20)
    assert again.is_recorded and again.shape == relocated.shape


async def test_a_request_for_the_same_size_changes_nothing(rig: Resized) -> None:
    await rig.wait_for_steps()
    rig.resize([member(0, 1), member(1, 1)], dp_shard=2)
    await rig.wait_for_steps(steps=10)
    assert not rig.nodes.stops and not rig.running.done()


async def test_a_failure_during_a_resize_recovers_with_the_new_size(rig: Resized) -> None:
    """Treat the death of a rank that ignores the stop as the same change."""
    await rig.wait_for_steps()
    rig.nodes.listens = False
    rig.resize([member(0, 2), member(1, 2)], dp_shard=4)
    await rig.until(lambda: any(method == "stop_ranks" for _, method in rig.nodes.calls))
    rig.nodes._report("node-1", Exited(1, 1, -9, time.time()))
    relocated = await rig.relocate()
    assert relocated.layout.dp_shard == 4
    await rig.wait_for_steps(generation=2)
    incident = rig.events("incident")[-1]
    assert (incident["reason"], incident["recovery_action"]) == ("rank_exit", "resize")
