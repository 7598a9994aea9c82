"""Numeric faults in the supervisor. The job returns to a healthy state, or fails."""

from dataclasses import replace
from typing import Any

from regroup.workers.contract.held_sets import HeldShard
from regroup.workers.contract.messages import Exited, Failed
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig, RepeatedSpike
from regroup.workers.contract.rank_error import ErrorClass, RankError
from tests.service.supervisor.test_lifecycle import FakeNodes, outcomes, run


def failure(error_class: ErrorClass, at_step: int, message: str, **details: Any) -> Failed:
    return Failed(0, 1, RankError(error_class, "E", message, "trace", at_step, "backward", 3.0, details))


class TwoSets(FakeNodes):
    """Nodes with the two newest snapshots. The replicas differ after one step."""

    def __init__(self, breaks: Any, bad_step: int) -> None:
        super().__init__(breaks)
        self._bad_step = bad_step

    def _list_shards(self, node: str) -> list[HeldShard]:
        newest = super()._list_shards(node)
        older = [replace(held, step=held.step - 1) for held in newest]
        return [replace(held, digests={"w": self._digest(held)}) for held in (*newest, *older)]

    def _digest(self, held: HeldShard) -> int:
        return held.rank if held.step == self._bad_step and held.generation == 1 else 7


class DamagedSet(TwoSets):
    """Nodes with the two newest snapshots. Every rank's snapshot of one step fails its checksum when it is read."""

    def __init__(self, breaks: Any, bad_step: int) -> None:
        super().__init__(breaks, bad_step=-1)
        self.damaged_step, self.read = bad_step, list[tuple[str, int]]()

    def _verify_shards(self, node: str, generation: int, step: int) -> list[HeldShard]:
        self.read.append((node, step))
        return [] if step == self.damaged_step else super()._verify_shards(node, generation, step)


async def incidents(journal: Any) -> list[Any]:
    events = await journal.since("", 0, 0)
    found = {event.data["id"]: event.data for event in events if event.type == "incident"}
    return list(found.values())


async def test_differing_replicas_cost_one_step_and_the_outlier_rank_is_reported() -> None:
    error = failure(ErrorClass.CORRUPTION, 5, "rank 1 is odd", outlier_ranks=[1], is_certain=True)
    _, journal = await run(TwoSets({(1, 5): error}, bad_step=4))
    (incident,) = await incidents(journal)
    assert (incident["reason"], incident["rank"], incident["cause"]) == ("silent_corruption", 1, "rank 1 is odd")
    assert (incident["recovery_action"], incident["steps_lost"], incident["at_step"]) == ("respawn", 1, 4)
    assert incident["evidence"]["details"] == {"outlier_ranks": [1], "is_certain": True}
    events = await journal.since("", 0, 0)
    refused = [event.data["step"] for event in events if event.data.get("kind") == "snapshot_refused"]
    assert refused == [4]
    steps = [(event.generation, event.data["step"]) for event in events if event.type == "step"]
    assert steps == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (2, 5), (2, 6)]
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_set_that_fails_its_checksum_costs_one_step_and_only_chosen_sets_are_read() -> None:
    nodes = DamagedSet({(1, 5): Exited(1, 1, -9, 5.0)}, bad_step=4)
    _, journal = await run(nodes)
    (incident,) = await incidents(journal)
    assert (incident["recovery_action"], incident["steps_lost"], incident["at_step"]) == ("respawn", 1, 4)
    assert sorted(nodes.read) == [("node-0", 3), ("node-0", 4), ("node-1", 3), ("node-1", 4)]
    steps = [event.data["step"] for event in await journal.since("", 0, 0) if event.type == "step"]
    assert steps == [1, 2, 3, 4, 4, 5, 6]


async def test_a_non_finite_step_is_repeated_from_the_state_before_it() -> None:
    _, journal = await run(FakeNodes({(1, 4): failure(ErrorClass.NON_FINITE, 4, "step 4: loss nan")}))
    (incident,) = await incidents(journal)
    assert (incident["reason"], incident["rank"], incident["steps_lost"]) == ("non_finite", None, 0)
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")


async def test_a_step_that_is_non_finite_twice_fails_the_job_with_its_reason() -> None:
    error = failure(ErrorClass.NON_FINITE, 4, "step 4: loss nan")
    again = Failed(0, 2, error.error)
    _, journal = await run(FakeNodes({(1, 4): error, (2, 4): again}))
    first, second = await incidents(journal)
    assert (first["recovery_action"], second["recovery_action"]) == ("respawn", "fail")
    end = [event.data for event in await journal.since("", 0, 0) if event.type == "state"][-1]
    assert (end["state"], end["reason"]) == ("FAILED", "non_finite")
    assert "The same failure occurred before" in end["message"]
    assert end["error"]["message"] == "step 4: loss nan"


async def test_a_step_with_a_loss_spike_is_repeated_and_the_ranks_get_its_number() -> None:
    error = failure(ErrorClass.LOSS_SPIKE, 4, "step 4: loss 9 stands out", step=4, of="loss", value=9.0, limit=2.5)
    nodes = FakeNodes({(1, 4): error})
    _, journal = await run(nodes)
    (incident,) = await incidents(journal)
    assert (incident["reason"], incident["rank"], incident["recovery_action"]) == ("loss_spike", None, "respawn")
    assert (await outcomes(journal))[-1] == ("state", "SUCCEEDED")
    rules = {join.generation: join.config.loss_spike for join in nodes.joins}
    warn = LossSpikeAction.WARN
    assert rules == {1: LossSpikeConfig(warn), 2: LossSpikeConfig(warn, (RepeatedSpike(4, "loss", 2.5),))}
