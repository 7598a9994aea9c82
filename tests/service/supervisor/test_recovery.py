"""Calls of a recovery: each one reaches all nodes of a job while all ranks wait."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from regroup.workers.contract.agent_records import DeathProof
from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Exited
from tests.support.doubles.supervised_job import FakeNodes, outcomes, run

DEATH = Exited(0, 1, -9, 3.0)


class Verifying(FakeNodes):
    """Nodes that verified their newest set before they proved the death of their ranks, except some."""

    def __init__(self, *, late: Collection[str] = ()) -> None:
        super().__init__({(1, 4): DEATH})
        self._late = late

    def _list_shards(self, node: str) -> list[HeldShard]:
        return [replace(shard, is_verified=node not in self._late) for shard in super()._list_shards(node)]


def calls_of_recovery(nodes: FakeNodes) -> Counter[tuple[str, str]]:
    """Return the calls from the first death of ranks to the next formation, without scans and calls about mirrors."""
    begin = nodes.calls.index(("node-0", "kill_ranks"))
    end = len(nodes.calls) - nodes.calls[::-1].index(("node-1", "form_ranks"))
    others = ("scan_checkpoints", "request_mirror", "retain_mirror")
    return Counter(call for call in nodes.calls[begin:end] if call[1] not in others)


async def test_the_death_of_a_rank_costs_two_calls_per_node() -> None:
    nodes = Verifying()
    _, journal = await run(nodes)
    assert calls_of_recovery(nodes) == {
        ("node-0", "kill_ranks"): 1, ("node-1", "kill_ranks"): 1, ("node-0", "start_store"): 1,
        ("node-0", "form_ranks"): 1, ("node-1", "form_ranks"): 1,
    }  # fmt: skip
    incident = [event.data for event in await journal.since("", 0, 0) if event.type == "incident"][-1]
    assert (incident["recovery_action"], incident["steps_lost"]) == ("respawn", 0)
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_only_nodes_that_have_not_verified_their_part_get_a_call_for_it() -> None:
    nodes = Verifying(late={"node-1"})
    await run(nodes)
    found = calls_of_recovery(nodes)
    assert {call for call in found if call[1] in ("list_shards", "verify_shards")} == {("node-1", "verify_shards")}


async def test_after_the_loss_of_a_node_all_nodes_list_their_state() -> None:
    """Check that the proofs of death are not used: the agent that replaces the lost one is not in them."""
    nodes = FakeNodes({(1, 4): "node-1"})
    await run(nodes)
    listed = [node for node, method in calls_of_recovery(nodes).elements() if method == "list_shards"]
    assert sorted(listed) == ["node-0", "node-1"]


class Slow(Verifying):
    """Nodes that need 0.5 s to verify their state."""

    async def _kill_ranks(self, node: str, generation: int) -> DeathProof:  # type: ignore[override]
        proof = super()._kill_ranks(node, generation)
        await asyncio.sleep(0.5)
        return replace(proof, since_s=0.5 if node == "node-0" else 0.4)


async def test_the_time_of_verification_does_not_count_as_time_to_kill() -> None:
    _, journal = await run(Slow())
    incident = [event.data for event in await journal.since("", 0, 0) if event.type == "incident"][-1]
    times = incident["times"]
    assert times["decided_s"] - times["dead_s"] > 0.35 and times["dead_s"] - times["seen_s"] < 0.3
