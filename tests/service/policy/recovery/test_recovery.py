"""Classification, budgets and the choice of a restore source."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind, node_event_kind_of
from regroup.service.policy.recovery.budget import Charge, decide_recovery
from regroup.service.policy.recovery.classify import (
    STORE_RANK,
    ZYGOTE_RANK,
    AgentLoss,
    Cause,
    ProcessExit,
    RankFailure,
    blame_device,
    classify_failure,
)
from regroup.service.policy.recovery.restore_source import (
    MAX_SHARDS,
    RestoreKind,
    RestoreSource,
    SavedCheckpoint,
    Shard,
    choose_recovery_action,
    choose_restore_source,
    find_diverged_sets,
)
from regroup.service.supervisor.incidents import Incident

BUDGETS = {"rank_exit": 3, "node_loss": 1, "hang": 1, "io_error": 2}


def failure(rank: int, error_class: str, time_s: float) -> RankFailure:
    return RankFailure(rank, error_class, "E", "m", "t", 3, "forward", time_s)


def test_the_cause_is_the_first_error_that_is_not_collateral() -> None:
    cause = classify_failure(
        [failure(0, "collateral", 1.0), failure(1, "user", 2.0)], [ProcessExit(0, 1, 1.1, "a")], []
    )
    assert (cause.reason, cause.rank) == (Reason.USER_ERROR, 1)


def test_a_signal_beats_the_collateral_it_caused_even_if_heard_later() -> None:
    cause = classify_failure(
        [failure(0, "collateral", 1.0)], [ProcessExit(0, 1, 1.2, "a"), ProcessExit(1, -9, 1.3, "b")], []
    )
    assert (cause.reason, cause.rank, cause.summary) == (Reason.RANK_EXIT, 1, "rank 1 killed by signal 9")


def test_every_way_a_program_ends_has_its_reason() -> None:
    said = RankFailure(0, "user", "SystemExit", "the script exited with code 137", "", 3, "forward", 1.0)
    for code in (1, 3, 130, 137):  # a code that it chose itself was said before
        assert classify_failure([said], [ProcessExit(0, code, 1.1, "a")], []).reason is Reason.USER_ERROR
    for signal in (2, 6, 9, 11, 15):
        cause = classify_failure([], [ProcessExit(0, -signal, 1.0, "a")], [])
        assert (cause.reason, cause.summary) == (Reason.RANK_EXIT, f"rank 0 killed by signal {signal}")
    assert classify_failure([], [ProcessExit(0, 3, 1.0, "a")], []).summary == "rank 0 exited with code 3", (
        "os._exit says nothing"
    )
    out_of_memory = classify_failure([], [ProcessExit(0, -9, 1.0, "a", out_of_memory=True)], [])
    assert out_of_memory.summary.startswith("rank 0 killed by signal 9: its node was out of memory; take smaller")
    assert node_event_kind_of(out_of_memory.reason, out_of_memory.evidence) is NodeEventKind.OUT_OF_MEMORY
    event = Incident("i", 1, out_of_memory, 3, {"fault_s": 1.0}).to_event()
    assert Incident.from_event(event).to_event() == event


def test_a_hang_explains_what_came_of_ending_it() -> None:
    hang = Cause(Reason.HANG, "no rank moved on", 5.0)
    assert classify_failure([failure(0, "user", 1.0)], [ProcessExit(1, -9, 2.0, "a")], [], hang) is hang


def test_a_lost_agent_explains_the_exits_of_its_node() -> None:
    cause = classify_failure([], [ProcessExit(0, -9, 1.0, "a")], [AgentLoss("a", 2.0)])
    assert (cause.reason, cause.node_id) == (Reason.AGENT_LOST, "a")


def test_a_zygote_explains_its_ranks_and_a_store_stands_for_itself() -> None:
    assert (
        classify_failure([], [ProcessExit(0, -9, 1.0, "a"), ProcessExit(ZYGOTE_RANK, -9, 1.1, "a")], []).reason
        is Reason.ZYGOTE_EXIT
    )
    assert (
        classify_failure([failure(0, "collateral", 2.0)], [ProcessExit(STORE_RANK, -9, 1.0, "a")], []).reason
        is Reason.STORE_EXIT
    )


def test_only_collateral_is_still_retried() -> None:
    assert classify_failure([failure(0, "collateral", 1.0)], [], []).reason is Reason.RANK_EXIT


def judged(
    charges: list[Charge],
    *,
    now_s: float = 100.0,
    step: int = 50,
    reason: Reason = Reason.RANK_EXIT,
    budgets: Mapping[str, int] = BUDGETS,
):
    return decide_recovery(
        Cause(reason, "x", now_s), charges, budgets, window_s=60, refill_steps=10, now_s=now_s, step=step
    )


def test_a_crash_loop_without_progress_exhausts_its_budget_and_waits_longer_each_time() -> None:
    charges: list[Charge] = []
    verdicts = []
    for attempt in range(4):
        verdicts.append(judged(charges, now_s=90.0 + attempt, step=5))
        charges.append(Charge("rank_exit", 90.0 + attempt, 5))
    assert [verdict.is_recovery for verdict in verdicts] == [True, True, True, False]
    assert verdicts[-1].reason is Reason.BUDGET_EXHAUSTED
    assert "recovery.budgets.rank_exit=3" in verdicts[-1].message
    assert verdicts[0].backoff_s == 0 < verdicts[2].backoff_s


def test_storage_that_does_not_answer_is_given_time_from_the_first_failure() -> None:
    first = judged([], reason=Reason.IO_ERROR)
    second = judged([Charge("io_error", 99.0, 10)], reason=Reason.IO_ERROR, step=10)
    assert 0 < first.backoff_s < second.backoff_s


def test_progress_refills_and_the_window_forgets() -> None:
    steady = [Charge("rank_exit", 90.0 + i, 10 * i) for i in range(8)]
    assert judged(steady, step=90).is_recovery
    old = [Charge("rank_exit", 10.0, 50)] * 8
    assert judged(old).is_recovery
    other = [Charge("io_error", 99.0, 50)] * 8
    assert judged(other).is_recovery


@pytest.mark.parametrize("reason", [Reason.NON_FINITE, Reason.DEVICE_ERROR])
def test_what_is_no_accident_the_second_time_at_the_same_step(reason: Reason) -> None:
    budgets, budget = {**BUDGETS, reason.value: 3}, reason.value
    first = judged([], reason=reason, budgets=budgets)
    assert first.is_recovery and first.backoff_s == 0
    again = judged([Charge(budget, 99.0, 50)], reason=reason, budgets=budgets)
    assert (again.is_recovery, again.reason) == (False, reason)
    assert "The same failure occurred before" in again.message
    elsewhere = [Charge(budget, 99.0, step) for step in (20, 49)]
    assert judged(elsewhere, reason=reason, budgets=budgets).is_recovery
    many = [Charge(budget, 99.0, step) for step in (47, 48, 49)]
    assert judged(many, reason=reason, budgets=budgets).reason is Reason.BUDGET_EXHAUSTED
    at_once = judged([], reason=reason, budgets={**BUDGETS, budget: 0})
    assert (at_once.is_recovery, at_once.reason) == (False, reason)


def test_what_all_ranks_raise_blames_none_of_them_but_the_odd_one() -> None:
    nan = classify_failure(
        [failure(2, "non_finite", 1.0), failure(0, "non_finite", 1.1)], [ProcessExit(2, 1, 1.2, "a")], []
    )
    assert (nan.reason, nan.rank, nan.summary) == (Reason.NON_FINITE, None, "m")
    details = {"outlier_ranks": [1], "is_certain": True}
    odd = RankFailure(2, "corruption", "E", "m", "t", 3, "forward", 1.0, details)
    cause = classify_failure([odd], [], [])
    assert (cause.reason, cause.rank, cause.summary) == (Reason.SILENT_CORRUPTION, 1, "m")
    pair = RankFailure(
        2, "corruption", "E", "m", "t", 3, "forward", 1.0, {"outlier_ranks": [0, 1], "is_certain": False}
    )
    assert classify_failure([pair], [], []).rank is None


NODES = {0: "a", 1: "b"}


def shards(step: int, generation: int = 1, nodes: dict[int, str] = NODES) -> list[Shard]:
    return [Shard(rank, 2, generation, step, "h", node) for rank, node in nodes.items()]


def test_the_newest_whole_set_in_memory_is_taken() -> None:
    torn = shards(9)[:1]
    assert choose_restore_source([*shards(7), *shards(8), *torn], [], {1: 0}, NODES) == RestoreSource(
        RestoreKind.MEMORY, 8, 1
    )


def test_a_set_in_which_replicas_differ_is_passed_over() -> None:
    def held(step: int, *digests: int) -> list[Shard]:
        return [
            Shard(rank, 2, 1, step, "h", NODES[rank], {"w": digest, f"own{rank}": rank})
            for rank, digest in enumerate(digests)
        ]

    sets = [*held(6, 5, 5), *held(7, 6, 6), *held(8, 7, 9)]
    assert choose_restore_source(sets, [], {1: 0}, NODES) == RestoreSource(RestoreKind.MEMORY, 7, 1)
    assert find_diverged_sets(sets) == [(1, 8)]
    assert choose_restore_source(held(8, 7, 9), [SavedCheckpoint("u", 1, 4)], {1: 0}, NODES) == RestoreSource(
        RestoreKind.CHECKPOINT, 4, 1, "u"
    )


def test_a_shard_on_another_node_is_fetched_from_there() -> None:
    moved = shards(8, nodes={0: "a", 1: "c"})
    assert choose_restore_source([*moved, *shards(7)], [], {1: 0}, NODES) == RestoreSource(
        RestoreKind.MEMORY, 8, 1, fetch=((1, "c"),)
    )


def test_a_mirror_is_asked_only_for_what_its_node_has_lost() -> None:
    """Each node of a pair holds the other's: own memory first, and a set counts if all of it is somewhere."""
    mirrored = [*shards(6), *shards(6, nodes={0: "b", 1: "a"})]
    assert choose_restore_source(mirrored, [], {1: 0}, NODES) == RestoreSource(RestoreKind.MEMORY, 6, 1)
    of_a = [shard for shard in mirrored if shard.node_id == "a"]
    assert choose_restore_source([*of_a, *shards(8)[:1]], [], {1: 0}, NODES) == RestoreSource(
        RestoreKind.MEMORY, 6, 1, fetch=((1, "a"),)
    )
    assert choose_restore_source(of_a[:1], [SavedCheckpoint("u", 1, 2)], {1: 0}, NODES) == RestoreSource(
        RestoreKind.CHECKPOINT, 2, 1, "u"
    )
    newer_on_disk = [SavedCheckpoint("u", 1, 7)]
    assert choose_restore_source(of_a, newer_on_disk, {1: 0}, NODES) == RestoreSource(RestoreKind.CHECKPOINT, 7, 1, "u")


def test_what_other_ranks_wrote_goes_to_every_node_from_wherever_it_lies() -> None:
    """Three ranks are to go on with what two have left; a third node has a copy of one shard."""
    more = {0: "a", 1: "a", 2: "b"}
    source = choose_restore_source([*shards(8), *shards(8, nodes={1: "c"}), *shards(9)[:1]], [], {1: 0}, more)
    assert source == RestoreSource(RestoreKind.MEMORY, 8, 1, fetch=((0, "a"), (1, "b"), (1, "c")), world_size=2)
    assert source.shards_to_fetch("a") == {1: "c"} and source.shards_to_fetch("b") == {0: "a"}
    assert source.shards_to_fetch("d") == {0: "a", 1: "c"}
    assert (
        choose_restore_source([*shards(8), *shards(7)], [SavedCheckpoint("u", 1, 9)], {1: 0}, more).kind == "checkpoint"
    )


def test_as_many_ranks_that_were_split_otherwise_are_others() -> None:
    assert choose_restore_source(shards(8), [], {1: 0}, NODES, others=[1]).world_size == 2
    assert choose_restore_source(shards(8), [], {1: 0}, NODES, others=[2]).world_size == 0


def test_a_set_of_too_many_ranks_is_not_handed_to_others_but_to_its_own() -> None:
    many = dict.fromkeys(range(MAX_SHARDS + 1), "a")
    held = [Shard(rank, len(many), 1, 8, "h", "a") for rank in many]
    assert choose_restore_source(held, [], {1: 0}, {0: "a"}) == RestoreSource(RestoreKind.NONE)
    assert choose_restore_source(held, [], {1: 0}, many) == RestoreSource(RestoreKind.MEMORY, 8, 1)


@pytest.mark.parametrize(
    ("reason", "source", "is_elsewhere", "recovery_action"),
    [
        (Reason.RANK_EXIT, RestoreSource(RestoreKind.MEMORY), False, "respawn"),
        (Reason.AGENT_LOST, RestoreSource(RestoreKind.MEMORY), True, "spare"),
        (Reason.RESIZED, RestoreSource(RestoreKind.MEMORY, world_size=4), True, "resize"),
        (Reason.RANK_EXIT, RestoreSource(RestoreKind.MEMORY, world_size=1), False, "resize"),
        (Reason.AGENT_LOST, RestoreSource(RestoreKind.MEMORY, world_size=4), True, "shrink"),
        (Reason.AGENT_LOST, RestoreSource(RestoreKind.CHECKPOINT), True, "disk"),
    ],
)
def test_the_rung_says_how_a_job_goes_on(
    reason: Reason, source: RestoreSource, is_elsewhere: bool, recovery_action: str
) -> None:
    assert choose_recovery_action(reason, source, 2, is_elsewhere=is_elsewhere) == recovery_action


def test_disk_is_taken_when_newer_or_alone() -> None:
    saved = [SavedCheckpoint("u5", 1, 5), SavedCheckpoint("u9", 1, 9)]
    assert choose_restore_source(shards(8), saved, {1: 0}, NODES) == RestoreSource(RestoreKind.CHECKPOINT, 9, 1, "u9")
    assert choose_restore_source(shards(9), saved, {1: 0}, NODES) == RestoreSource(RestoreKind.MEMORY, 9, 1)
    assert choose_restore_source([], [], {1: 0}, NODES) == RestoreSource(RestoreKind.NONE)


def test_what_a_later_generation_overtook_does_not_count() -> None:
    starts = {1: 0, 2: 4}
    assert choose_restore_source(shards(8, generation=1), [SavedCheckpoint("u", 1, 6)], starts, NODES) == RestoreSource(
        RestoreKind.NONE
    )
    assert choose_restore_source(shards(4, generation=1), [], starts, NODES) == RestoreSource(RestoreKind.MEMORY, 4, 1)
    assert choose_restore_source(
        [*shards(5, generation=2), *shards(8, generation=1)], [], starts, NODES
    ) == RestoreSource(RestoreKind.MEMORY, 5, 2)


def test_an_error_of_the_code_ends_the_job_unless_it_has_a_budget() -> None:
    at_once = judged([], reason=Reason.USER_ERROR)
    assert not at_once.is_recovery and at_once.reason is Reason.USER_ERROR
    allowed = {**BUDGETS, "user_error": 1}
    assert judged([], reason=Reason.USER_ERROR, budgets=allowed).is_recovery
    assert (
        not judged([], reason=Reason.DESYNC).is_recovery
        and judged([], reason=Reason.DESYNC, budgets=allowed).is_recovery
    )
    again = judged([Charge("user_error", 99.0, 50)], reason=Reason.USER_ERROR, budgets=allowed)
    assert not again.is_recovery and again.reason is Reason.BUDGET_EXHAUSTED
    assert "recovery.budgets.user_error=1" in again.message


def test_steps_that_were_lost_take_nothing_from_a_budget() -> None:
    # Failed at step 100, restored an older state, failed at step 60: two failures, no more.
    assert judged([Charge("rank_exit", 98.0, 100)], step=60).is_recovery


def test_a_rank_on_a_node_with_a_device_that_is_no_good_died_of_that() -> None:
    broken, nodes = {"b": "GPU 1: Xid 79, it has fallen off the bus"}, {0: "a", 1: "b"}
    exited = Cause(Reason.RANK_EXIT, "rank 1 killed by signal 9", 3.0, 1)
    told = blame_device(exited, broken, nodes)
    assert (told.reason, told.rank, told.node_id) == (Reason.RANK_EXIT, 1, "b")
    assert told.summary == "rank 1 killed by signal 9; GPU 1: Xid 79, it has fallen off the bus"
    assert told.evidence == {"kind": "exit", "device": broken["b"]}
    for other in (replace(exited, rank=0), replace(exited, reason=Reason.USER_ERROR), Cause(Reason.HANG, "h", 1.0)):
        assert blame_device(other, broken, nodes) == other
