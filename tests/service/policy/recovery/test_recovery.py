"""Recovery: classification of failures, budgets, and the choice of a restore source."""

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
    is_explained,
)
from regroup.service.policy.recovery.restore_source import (
    NodeSet,
    RestoreKind,
    RestoreSource,
    SavedCheckpoint,
    choose_recovery_action,
    choose_restore_source,
    find_diverged_sets,
)
from regroup.service.supervisor.job_state.incidents import Incident
from regroup.workers.contract.held_sets import HeldSet

BUDGETS = {"rank_exit": 3, "node_loss": 1, "hang": 1, "io_error": 2}


def failure(rank: int, error_class: str, time_s: float) -> RankFailure:
    return RankFailure(rank, error_class, "E", "m", "t", 3, "forward", time_s)


def test_the_cause_is_the_first_error_that_is_not_collateral() -> None:
    cause = classify_failure(
        [failure(0, "collateral", 1.0), failure(1, "user", 2.0)], [ProcessExit(0, 1, 1.1, "a")], []
    )
    assert (cause.reason, cause.rank) == (Reason.USER_ERROR, 1)


def test_a_signal_is_the_cause_even_if_its_collateral_arrives_earlier() -> None:
    cause = classify_failure(
        [failure(0, "collateral", 1.0)], [ProcessExit(0, 1, 1.2, "a"), ProcessExit(1, -9, 1.3, "b")], []
    )
    assert (cause.reason, cause.rank, cause.summary) == (Reason.RANK_EXIT, 1, "rank 1 killed by signal 9")


def test_each_exit_of_a_program_has_its_reason() -> None:
    exited = RankFailure(0, "user", "SystemExit", "the script exited with code 137", "", 3, "forward", 1.0)
    for code in (1, 3, 130, 137):  # The rank has reported its own exit code.
        assert classify_failure([exited], [ProcessExit(0, code, 1.1, "a")], []).reason is Reason.USER_ERROR
    for signal in (2, 6, 9, 11, 15):
        cause = classify_failure([], [ProcessExit(0, -signal, 1.0, "a")], [])
        assert (cause.reason, cause.summary) == (Reason.RANK_EXIT, f"rank 0 killed by signal {signal}")
    assert classify_failure([], [ProcessExit(0, 3, 1.0, "a")], []).summary == "rank 0 exited with code 3", (
        "os._exit sends no report"
    )
    out_of_memory = classify_failure([], [ProcessExit(0, -9, 1.0, "a", out_of_memory=True)], [])
    assert out_of_memory.summary.startswith("rank 0 killed by signal 9: its node was out of memory; take smaller")
    assert node_event_kind_of(out_of_memory.reason, out_of_memory.evidence) is NodeEventKind.OUT_OF_MEMORY
    event = Incident("i", 1, out_of_memory, 3, {"fault_s": 1.0}).to_event()
    assert Incident.from_event(event).to_event() == event


def test_a_hang_is_the_cause_of_the_exits_that_end_it() -> None:
    hang = Cause(Reason.HANG, "no rank made progress", 5.0)
    assert classify_failure([failure(0, "user", 1.0)], [ProcessExit(1, -9, 2.0, "a")], [], hang) is hang


def test_a_lost_agent_is_the_cause_of_the_exits_of_its_node() -> None:
    cause = classify_failure([], [ProcessExit(0, -9, 1.0, "a")], [AgentLoss("a", 2.0)])
    assert (cause.reason, cause.node_id) == (Reason.AGENT_LOST, "a")


def test_exits_of_a_zygote_and_of_a_store_are_causes() -> None:
    assert (
        classify_failure([], [ProcessExit(0, -9, 1.0, "a"), ProcessExit(ZYGOTE_RANK, -9, 1.1, "a")], []).reason
        is Reason.ZYGOTE_EXIT
    )
    assert (
        classify_failure([failure(0, "collateral", 2.0)], [ProcessExit(STORE_RANK, -9, 1.0, "a")], []).reason
        is Reason.STORE_EXIT
    )


def test_collateral_failures_alone_count_as_a_rank_exit() -> None:
    alone, left = [failure(0, "collateral", 1.0)], [ProcessExit(0, 1, 1.1, "a")]
    assert classify_failure(alone, [], []).reason is Reason.RANK_EXIT
    assert not is_explained(alone, left, [], None)
    assert is_explained(alone, [*left, ProcessExit(1, -6, 1.2, "a")], [], None)


NODE_WITHOUT_STATE = ProcessExit(ZYGOTE_RANK, -9, 1.0, "a", stderr_tail="connection reset", failed_holders=("b",))
"""Node `a` could not fetch state from node `b`."""
RANK_WITHOUT_STATE = replace(failure(2, "io", 1.1), failed_holders=("b",))
"""A rank whose node could not fetch its state from node `b`."""


def test_a_lost_holder_is_the_cause_of_failures_to_fetch_from_it() -> None:
    exits, lost = [NODE_WITHOUT_STATE, ProcessExit(2, 1, 1.2, "a")], [AgentLoss("b", 2.0)]
    cause = classify_failure([RANK_WITHOUT_STATE], exits, lost)
    assert (cause.reason, cause.node_id, cause.rank) == (Reason.AGENT_LOST, "b", None)
    assert node_event_kind_of(cause.reason, cause.evidence) is NodeEventKind.AGENT_LOST


def test_a_failure_to_fetch_is_the_cause_if_another_agent_is_lost_later_or_none() -> None:
    cause = classify_failure([], [NODE_WITHOUT_STATE], [])
    assert (cause.reason, cause.node_id) == (Reason.ZYGOTE_EXIT, "a")
    assert classify_failure([RANK_WITHOUT_STATE], [], []).reason is Reason.IO_ERROR
    assert classify_failure([], [NODE_WITHOUT_STATE], [AgentLoss("c", 2.0)]).reason is Reason.ZYGOTE_EXIT


def test_a_failure_to_fetch_waits_for_the_loss_of_the_holder() -> None:
    left = ProcessExit(2, 1, 1.2, "a")
    assert not is_explained([RANK_WITHOUT_STATE], [left], [], None)
    assert not is_explained([], [NODE_WITHOUT_STATE], [], None)
    assert is_explained([], [NODE_WITHOUT_STATE], [AgentLoss("b", 2.0)], None)
    assert is_explained([RANK_WITHOUT_STATE], [left, ProcessExit(1, -6, 1.2, "c")], [], None), "another rank died"
    assert is_explained([], [replace(NODE_WITHOUT_STATE, failed_holders=())], [], None), "its zygote died"


def decide(
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


def test_a_crash_loop_exhausts_its_budget_with_increasing_backoff() -> None:
    charges: list[Charge] = []
    verdicts = []
    for attempt in range(4):
        verdicts.append(decide(charges, now_s=90.0 + attempt, step=5))
        charges.append(Charge("rank_exit", 90.0 + attempt, 5))
    assert [verdict.is_recovery for verdict in verdicts] == [True, True, True, False]
    assert verdicts[-1].reason is Reason.BUDGET_EXHAUSTED
    assert "recovery.budgets.rank_exit=3" in verdicts[-1].message
    assert verdicts[0].backoff_s == 0 < verdicts[2].backoff_s


def test_a_storage_failure_has_a_backoff_from_the_first_time() -> None:
    first = decide([], reason=Reason.IO_ERROR)
    second = decide([Charge("io_error", 99.0, 10)], reason=Reason.IO_ERROR, step=10)
    assert 0 < first.backoff_s < second.backoff_s


def test_progress_refills_a_budget_and_old_charges_expire() -> None:
    steady = [Charge("rank_exit", 90.0 + i, 10 * i) for i in range(8)]
    assert decide(steady, step=90).is_recovery
    old = [Charge("rank_exit", 10.0, 50)] * 8
    assert decide(old).is_recovery
    other = [Charge("io_error", 99.0, 50)] * 8
    assert decide(other).is_recovery


@pytest.mark.parametrize("reason", [Reason.NON_FINITE, Reason.DEVICE_ERROR])
def test_a_failure_that_repeats_at_the_same_step_fails_the_job(reason: Reason) -> None:
    budgets, budget = {**BUDGETS, reason.value: 3}, reason.value
    first = decide([], reason=reason, budgets=budgets)
    assert first.is_recovery and first.backoff_s == 0
    again = decide([Charge(budget, 99.0, 50)], reason=reason, budgets=budgets)
    assert (again.is_recovery, again.reason) == (False, reason)
    assert "The same failure occurred before" in again.message
    elsewhere = [Charge(budget, 99.0, step) for step in (20, 49)]
    assert decide(elsewhere, reason=reason, budgets=budgets).is_recovery
    many = [Charge(budget, 99.0, step) for step in (47, 48, 49)]
    assert decide(many, reason=reason, budgets=budgets).reason is Reason.BUDGET_EXHAUSTED
    at_once = decide([], reason=reason, budgets={**BUDGETS, budget: 0})
    assert (at_once.is_recovery, at_once.reason) == (False, reason)


@pytest.mark.parametrize("reason", [Reason.NON_FINITE, Reason.DEVICE_ERROR])
def test_the_step_of_the_failed_rank_decides_what_the_same_step_is(reason: Reason) -> None:
    """Compare failures of rank 1 in step 5: rank 0 has committed step 4 or, by chance, step 5."""
    budgets, budget = {**BUDGETS, reason.value: 3}, reason.value
    cause = Cause(reason, "x", 100.0, 1, None, RankFailure(1, "device", "E", "m", "t", 5, "commit", 100.0))

    def is_recovery(charge: Charge) -> bool:
        return decide_recovery(cause, [charge], budgets, window_s=60, refill_steps=10, now_s=100.0, step=5).is_recovery

    assert not is_recovery(Charge(budget, 99.0, 4, failed_at=5)), "rank 0 was a step behind"
    assert not is_recovery(Charge(budget, 99.0, 5, failed_at=5))
    assert is_recovery(Charge(budget, 99.0, 4, failed_at=4)), "another step of the same rank"
    assert is_recovery(Charge(budget, 99.0, 2, failed_at=5)), "the same count in a script that does not report steps"
    assert not is_recovery(Charge(budget, 99.0, 5)), "an older record without the step of the rank"


def test_a_failure_of_all_ranks_names_a_rank_only_if_it_is_an_outlier() -> None:
    nan = classify_failure(
        [failure(2, "non_finite", 1.0), failure(0, "non_finite", 1.1)], [ProcessExit(2, 1, 1.2, "a")], []
    )
    assert (nan.reason, nan.rank, nan.summary) == (Reason.NON_FINITE, None, "m")
    details = {"outlier_ranks": [1], "is_certain": True}
    corruption = RankFailure(2, "corruption", "E", "m", "t", 3, "forward", 1.0, details)
    cause = classify_failure([corruption], [], [])
    assert (cause.reason, cause.rank, cause.summary) == (Reason.SILENT_CORRUPTION, 1, "m")
    pair = RankFailure(
        2, "corruption", "E", "m", "t", 3, "forward", 1.0, {"outlier_ranks": [0, 1], "is_certain": False}
    )
    assert classify_failure([pair], [], []).rank is None


NODES = {0: "a", 1: "b"}


def shards(step: int, generation: int = 1, nodes: dict[int, str] = NODES) -> list[NodeSet]:
    return [NodeSet(node, HeldSet(2, generation, step, "h", (rank,))) for rank, node in nodes.items()]


def test_the_newest_complete_set_in_memory_is_restored() -> None:
    torn = shards(9)[:1]
    assert choose_restore_source([*shards(7), *shards(8), *torn], [], {1: 0}, NODES) == RestoreSource(
        RestoreKind.MEMORY, 8, 1
    )


def test_a_set_with_differing_replicas_is_skipped() -> None:
    def shards_with(step: int, *digests: int) -> list[NodeSet]:
        return [
            NodeSet(NODES[rank], HeldSet(2, 1, step, "h", (rank,), ({"w": digest, f"own{rank}": rank},)))
            for rank, digest in enumerate(digests)
        ]

    sets = [*shards_with(6, 5, 5), *shards_with(7, 6, 6), *shards_with(8, 7, 9)]
    assert choose_restore_source(sets, [], {1: 0}, NODES) == RestoreSource(RestoreKind.MEMORY, 7, 1)
    assert find_diverged_sets(sets) == [(1, 8)]
    within_a_node = NodeSet("a", HeldSet(2, 1, 8, "h", (0, 1), ({"w": 7}, {"w": 9})))
    assert find_diverged_sets([within_a_node]) == [(1, 8)]
    assert choose_restore_source(shards_with(8, 7, 9), [SavedCheckpoint("u", 1, 4)], {1: 0}, NODES) == RestoreSource(
        RestoreKind.CHECKPOINT, 4, 1, "u"
    )


def test_a_shard_on_another_node_is_fetched() -> None:
    relocated = shards(8, nodes={0: "a", 1: "c"})
    assert choose_restore_source([*relocated, *shards(7)], [], {1: 0}, NODES) == RestoreSource(
        RestoreKind.MEMORY, 8, 1, fetch=((1, "c"),)
    )


def test_a_mirror_is_used_only_for_shards_that_its_node_has_lost() -> None:
    """Prefer a node's own memory. A set is complete if each shard is on some node."""
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


def test_after_a_resize_each_node_knows_all_holders() -> None:
    """Restore three ranks from the shards of two ranks. A third node has a copy of one shard."""
    more = {0: "a", 1: "a", 2: "b"}
    source = choose_restore_source([*shards(8), *shards(8, nodes={1: "c"}), *shards(9)[:1]], [], {1: 0}, more)
    assert source == RestoreSource(RestoreKind.MEMORY, 8, 1, fetch=((0, "a"), (1, "b"), (1, "c")), world_size=2)
    assert source.all_holders == {"a": (0,), "b": (1,), "c": (1,)}
    assert (
        choose_restore_source([*shards(8), *shards(7)], [SavedCheckpoint("u", 1, 9)], {1: 0}, more).kind == "checkpoint"
    )


def test_the_same_number_of_ranks_with_another_split_counts_as_a_resize() -> None:
    assert choose_restore_source(shards(8), [], {1: 0}, NODES, others=[1]).world_size == 2
    assert choose_restore_source(shards(8), [], {1: 0}, NODES, others=[2]).world_size == 0


def test_a_set_of_any_size_can_be_restored_by_other_ranks() -> None:
    many = dict.fromkeys(range(1000), "a")
    held = [NodeSet("a", HeldSet(len(many), 1, 8, "h", tuple(many)))]
    source = choose_restore_source(held, [], {1: 0}, {0: "a"})
    assert (source.kind, source.world_size, source.all_holders) == (
        RestoreKind.MEMORY, 1000, {"a": tuple(range(1000))},
    )  # fmt: skip
    assert choose_restore_source(held, [], {1: 0}, many) == RestoreSource(RestoreKind.MEMORY, 8, 1)


def test_all_holders_of_a_lost_shard_are_known() -> None:
    mirrored = [*shards(8, nodes={0: "a"}), *shards(8, nodes={1: "c"}), *shards(8, nodes={1: "d"})]
    source = choose_restore_source(mirrored, [], {1: 0}, NODES)
    assert source.fetch == ((1, "d"), (1, "c"))
    assert source.holders_of_lost(NODES) == {"b": {"d": (1,), "c": (1,)}}


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
def test_the_recovery_action_follows_from_reason_and_source(
    reason: Reason, source: RestoreSource, is_elsewhere: bool, recovery_action: str
) -> None:
    assert choose_recovery_action(reason, source, 2, is_elsewhere=is_elsewhere) == recovery_action


def test_a_checkpoint_is_restored_if_it_is_newer_or_the_only_source() -> None:
    saved = [SavedCheckpoint("u5", 1, 5), SavedCheckpoint("u9", 1, 9)]
    assert choose_restore_source(shards(8), saved, {1: 0}, NODES) == RestoreSource(RestoreKind.CHECKPOINT, 9, 1, "u9")
    assert choose_restore_source(shards(9), saved, {1: 0}, NODES) == RestoreSource(RestoreKind.MEMORY, 9, 1)
    assert choose_restore_source([], [], {1: 0}, NODES) == RestoreSource(RestoreKind.NONE)


def test_superseded_shards_and_checkpoints_are_ignored() -> None:
    starts = {1: 0, 2: 4}
    assert choose_restore_source(shards(8, generation=1), [SavedCheckpoint("u", 1, 6)], starts, NODES) == RestoreSource(
        RestoreKind.NONE
    )
    assert choose_restore_source(shards(4, generation=1), [], starts, NODES) == RestoreSource(RestoreKind.MEMORY, 4, 1)
    assert choose_restore_source(
        [*shards(5, generation=2), *shards(8, generation=1)], [], starts, NODES
    ) == RestoreSource(RestoreKind.MEMORY, 5, 2)


def test_a_user_error_fails_the_job_unless_it_has_a_budget() -> None:
    at_once = decide([], reason=Reason.USER_ERROR)
    assert not at_once.is_recovery and at_once.reason is Reason.USER_ERROR
    allowed = {**BUDGETS, "user_error": 1}
    assert decide([], reason=Reason.USER_ERROR, budgets=allowed).is_recovery
    assert (
        not decide([], reason=Reason.DESYNC).is_recovery
        and decide([], reason=Reason.DESYNC, budgets=allowed).is_recovery
    )
    again = decide([Charge("user_error", 99.0, 50)], reason=Reason.USER_ERROR, budgets=allowed)
    assert not again.is_recovery and again.reason is Reason.BUDGET_EXHAUSTED
    assert "recovery.budgets.user_error=1" in again.message


def test_lost_steps_do_not_reduce_a_budget() -> None:
    # A failure at step 100, a restore of an older state and a failure at step 60 are two failures.
    assert decide([Charge("rank_exit", 98.0, 100)], step=60).is_recovery


def test_a_broken_device_is_the_cause_of_an_exit_on_its_node() -> None:
    broken, nodes = {"b": "GPU 1: Xid 79, it has fallen off the bus"}, {0: "a", 1: "b"}
    exited = Cause(Reason.RANK_EXIT, "rank 1 killed by signal 9", 3.0, 1)
    blamed = blame_device(exited, broken, nodes)
    assert (blamed.reason, blamed.rank, blamed.node_id) == (Reason.RANK_EXIT, 1, "b")
    assert blamed.summary == "rank 1 killed by signal 9; GPU 1: Xid 79, it has fallen off the bus"
    assert blamed.evidence == {"kind": "exit", "device": broken["b"]}
    for other in (replace(exited, rank=0), replace(exited, reason=Reason.USER_ERROR), Cause(Reason.HANG, "h", 1.0)):
        assert blame_device(other, broken, nodes) == other


def test_the_death_of_a_zygote_explains_that_of_the_store_on_its_node() -> None:
    store, zygote = ProcessExit(STORE_RANK, -9, 10.0, "n0"), ProcessExit(ZYGOTE_RANK, -9, 10.1, "n0")
    ranks = [ProcessExit(rank, -9, 10.0, "n0") for rank in (0, 1)]
    cause = classify_failure([], [store, *ranks, zygote], [], names={"n0": "local-1"})
    assert (cause.reason, cause.summary, cause.node_id) == (Reason.ZYGOTE_EXIT, "zygote on node local-1 died", "n0")
    elsewhere = ProcessExit(ZYGOTE_RANK, -9, 10.1, "n1")
    cause = classify_failure([], [store, elsewhere], [], names={"n0": "local-1"})
    assert (cause.reason, cause.summary) == (Reason.STORE_EXIT, "store process on node local-1 killed by signal 9")


def test_the_loss_of_an_agent_names_its_node() -> None:
    cause = classify_failure([], [], [AgentLoss("6e0f5a61c2", 1.0)], names={"6e0f5a61c2": "local-2"})
    assert cause.summary == "agent on node local-2 lost"
    assert classify_failure([], [], [AgentLoss("6e0f5a61c2", 1.0)]).summary == "agent on node 6e0f5a61 lost"


def test_a_node_fetches_the_shards_of_its_own_ranks_only() -> None:
    source = RestoreSource(RestoreKind.MEMORY, 8, 1, fetch=((1, "c"), (2, "a"), (2, "c")))
    node_of_rank = {0: "a", 1: "a", 2: "b", 3: "c"}
    assert source.holders_of_lost(node_of_rank) == {"a": {"c": (1,)}, "b": {"a": (2,), "c": (2,)}}
