"""Desynchronized collectives: the first one at which ranks differ, and ranks that have not entered one."""

from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.desync import (
    add_desync_evidence,
    describe_newest,
    entered_collectives,
    find_desync,
    find_missing_ranks,
)
from regroup.service.policy.recovery.classify import ProcessExit, RankFailure, classify_failure


def entry(sequence: int, name: str, count: int = 8, kind: str = "Float", **fields: Any) -> dict[str, Any]:
    shapes, types = ([[count]], [kind]) if count else ([], [])
    same = {"group": "0", "first_rank": 0, "title": "default_pg", "is_over": True}
    return {**same, "sequence": sequence, "name": name, "shapes": shapes, "types": types, **fields}


STEP = [entry(1, "all_reduce", 1000), entry(2, "all_reduce", 8, "Double")]


def test_ranks_with_the_same_collectives_agree_at_any_progress() -> None:
    behind = {0: [*STEP, entry(3, "barrier", 0, is_over=False)], 1: STEP, 2: STEP[1:]}
    assert find_desync(behind) is None
    assert find_desync({0: None, 1: STEP, 2: []}) is None


def test_a_rank_that_skipped_a_collective_is_reported_with_its_next_one() -> None:
    gradients = [*STEP, entry(3, "all_reduce", 1000, is_over=False)]
    skipped = [*STEP, entry(3, "all_reduce", 8, "Double", is_over=False)]
    found = find_desync({0: gradients, 1: gradients, 2: skipped, 3: gradients})
    assert found is not None and (found.outliers, found.sequence) == ((2,), 3)
    assert found.summary == (
        "ranks entered different collectives: rank 2 into all_reduce of 8 Double, the others into all_reduce of 1000 "
        "Float, as collective 3 of group default_pg"
    )


def test_each_outlier_is_named_with_its_own_collective() -> None:
    entered = {rank: [entry(4, "all_reduce", 1000)] for rank in range(7)}
    entered |= {1: [entry(4, "barrier", 0)], 3: [entry(4, "broadcast")], 6: [entry(4, "barrier", 0)]}
    found = find_desync(entered)
    assert found is not None and found.outliers == (1, 3, 6)
    assert found.summary.startswith(
        "ranks entered different collectives: ranks 1, 6 into barrier, rank 3 into broadcast of 8 Float, the others "
        "into all_reduce of 1000 Float"
    )


def test_two_differing_ranks_have_no_outlier() -> None:
    found = find_desync({0: [entry(5, "all_gather")], 4: [entry(5, "broadcast")]})
    assert found is not None and found.outliers == ()
    assert "rank 0 into all_gather, rank 4 into broadcast of 8 Float, as collective 5" in found.summary


def test_legal_differences_of_shapes_are_ignored() -> None:
    assert find_desync({0: [entry(1, "all_gather", 3)], 1: [entry(1, "all_gather", 5)]}) is None
    flat, square = entry(1, "all_reduce", shapes=[[16]]), entry(1, "all_reduce", shapes=[[4, 4]])
    assert find_desync({0: [flat], 1: [square]}) is None


def test_groups_with_one_name_and_no_common_rank_are_not_compared() -> None:
    """Ignore groups that were split from one group: they have the same name but independent collectives."""
    collectives = {rank: [entry(1, name, first_rank=rank)] for rank, name in ((0, "all_gather"), (2, "broadcast"))}
    assert find_desync(collectives) is None


def test_a_rank_that_is_missing_in_a_collective_is_reported() -> None:
    waiting = [*STEP, entry(3, "all_reduce", is_over=False)]
    found = find_missing_ranks({0: waiting, 1: STEP, 2: waiting, 3: None})
    assert found is not None and found.ranks == (1,)
    assert found.summary == "rank 1 did not enter all_reduce of 8 Float, collective 3 of group default_pg"
    assert find_missing_ranks({0: waiting, 1: waiting}) is None
    assert find_missing_ranks({0: STEP, 1: STEP[:1]}) is None, "no rank waits"


def test_the_newest_collective_of_a_rank_is_described() -> None:
    assert describe_newest(None) == "no answer" and describe_newest([]) == "none"
    assert describe_newest(STEP) == "all_reduce of 8 Double, number 2 of group default_pg (finished)"
    assert entered_collectives({0: {"text": ""}, 1: {"collectives": STEP}}) == {0: None, 1: STEP}


GLOO = "[enforce fail] 668 vs 16. Is there a distributed collective mismatch in your code?"
RESET = RankFailure(1, "collateral", "RuntimeError", "Connection reset by peer", "", 5, "forward", 1.1)


def test_a_rank_that_raised_and_ended_before_its_answer_keeps_its_collectives() -> None:
    ending, raised = {"collectives": None}, {1: STEP, 2: []}
    places = {0: {"collectives": STEP[:1]}, 1: ending, 2: {"collectives": STEP}, 3: ending}
    entered = entered_collectives(places, raised)
    assert entered == {0: STEP[:1], 1: STEP, 2: STEP, 3: None}


def test_an_abort_by_gloo_after_a_mismatch_is_a_desync_and_not_an_exit() -> None:
    aborted = classify_failure([RESET], [ProcessExit(0, -6, 1.0, "n", stderr_tail=GLOO)], [])
    assert (aborted.reason, aborted.rank) == (Reason.DESYNC, 0)
    assert (
        classify_failure([RESET], [ProcessExit(0, -6, 1.0, "n", stderr_tail="double free")], []).reason
        is Reason.RANK_EXIT
    )
    unknown = add_desync_evidence(aborted, {1: None})
    assert unknown.summary == "rank 0 killed by signal 6: a rank got data of another collective"
    places = {1: "train.py, line 8, in step", 0: "train.py, line 7, in step"}
    located = add_desync_evidence(aborted, {2: STEP}, places)
    assert located.summary == (
        "rank 0 killed by signal 6: a rank got data of another collective; aborted: "
        "rank 0 at train.py, line 7, in step, rank 1 at train.py, line 8, in step"
    )
    assert located.evidence is not None and list(located.evidence["crashed_at"]) == ["0", "1"]
    skipped, others = [entry(5, "all_reduce", 1000)], [entry(5, "all_reduce", 8, "Double")]
    named = add_desync_evidence(aborted, {1: skipped, 2: others, 3: others})
    assert named.rank == 1 and named.summary.startswith(
        "ranks entered different collectives: rank 1 into all_reduce of 1000"
    )
    assert named.summary.endswith("(rank 0 killed by signal 6)")
    assert named.evidence is not None and named.evidence["collectives"]["1"].startswith("all_reduce of 1000 Float")


def test_an_error_that_names_a_mismatch_is_a_desync_and_other_causes_are_not() -> None:
    message = "Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE"
    mismatch = RankFailure(2, "user", "RuntimeError", message, "", 5, "forward", 1.0)
    assert classify_failure([mismatch], [], []).reason is Reason.DESYNC
    killed = classify_failure([], [ProcessExit(0, -9, 1.0, "n")], [])
    assert add_desync_evidence(killed, {1: [entry(5, "all_reduce")], 2: [entry(5, "barrier", 0)]}) is killed
