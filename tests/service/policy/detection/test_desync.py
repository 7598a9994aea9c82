"""Who is in which collective: the first place where ranks differ, and who has not come."""

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


def test_ranks_that_agree_are_in_step_however_far_they_are() -> None:
    behind = {0: [*STEP, entry(3, "barrier", 0, is_over=False)], 1: STEP, 2: STEP[1:]}
    assert find_desync(behind) is None
    assert find_desync({0: None, 1: STEP, 2: []}) is None


def test_one_that_skipped_a_collective_is_named_with_what_it_entered_instead() -> None:
    gradients = [*STEP, entry(3, "all_reduce", 1000, is_over=False)]
    skipped = [*STEP, entry(3, "all_reduce", 8, "Double", is_over=False)]
    found = find_desync({0: gradients, 1: gradients, 2: skipped, 3: gradients})
    assert found is not None and (found.outliers, found.sequence) == ((2,), 3)
    assert found.summary == (
        "ranks entered different collectives: rank 2 into all_reduce of 8 Double, the others into all_reduce of 1000 "
        "Float, as collective 3 of group default_pg"
    )


def test_of_two_nobody_is_the_odd_one() -> None:
    found = find_desync({0: [entry(5, "all_gather")], 4: [entry(5, "broadcast")]})
    assert found is not None and found.outliers == ()
    assert "rank 0 into all_gather, rank 4 into broadcast of 8 Float, as collective 5" in found.summary


def test_what_ranks_may_bring_differently_is_no_difference() -> None:
    assert find_desync({0: [entry(1, "all_gather", 3)], 1: [entry(1, "all_gather", 5)]}) is None
    flat, square = entry(1, "all_reduce", shapes=[[16]]), entry(1, "all_reduce", shapes=[[4, 4]])
    assert find_desync({0: [flat], 1: [square]}) is None


def test_groups_of_one_name_that_share_no_rank_are_not_compared() -> None:
    """Groups that one was split into have the same name and go ways of their own."""
    ways = {rank: [entry(1, name, first_rank=rank)] for rank, name in ((0, "all_gather"), (2, "broadcast"))}
    assert find_desync(ways) is None


def test_who_has_not_come_to_a_collective_that_others_are_in_is_named() -> None:
    waiting = [*STEP, entry(3, "all_reduce", is_over=False)]
    found = find_missing_ranks({0: waiting, 1: STEP, 2: waiting, 3: None})
    assert found is not None and found.ranks == (1,)
    assert found.summary == "rank 1 did not enter all_reduce of 8 Float, collective 3 of group default_pg"
    assert find_missing_ranks({0: waiting, 1: waiting}) is None
    assert find_missing_ranks({0: STEP, 1: STEP[:1]}) is None, "nobody waits"


def test_what_a_rank_said_last_in_words() -> None:
    assert describe_newest(None) == "no answer" and describe_newest([]) == "none"
    assert describe_newest(STEP) == "all_reduce of 8 Double, number 2 of group default_pg (finished)"
    assert entered_collectives({0: {"text": ""}, 1: {"collectives": STEP}}) == {0: None, 1: STEP}


GLOO = "[enforce fail] 668 vs 16. Is there a distributed collective mismatch in your code?"
RESET = RankFailure(1, "collateral", "RuntimeError", "Connection reset by peer", "", 5, "forward", 1.1)


def test_a_rank_that_gloo_aborts_over_another_collective_is_no_exit_to_be_tried_again() -> None:
    aborted = classify_failure([RESET], [ProcessExit(0, -6, 1.0, "n", stderr_tail=GLOO)], [])
    assert (aborted.reason, aborted.rank) == (Reason.DESYNC, 0)
    assert (
        classify_failure([RESET], [ProcessExit(0, -6, 1.0, "n", stderr_tail="double free")], []).reason
        is Reason.RANK_EXIT
    )
    unknown = add_desync_evidence(aborted, {1: None})
    assert unknown.summary == "rank 0 killed by signal 6: a rank got data of another collective"
    skipped, others = [entry(5, "all_reduce", 1000)], [entry(5, "all_reduce", 8, "Double")]
    named = add_desync_evidence(aborted, {1: skipped, 2: others, 3: others})
    assert named.rank == 1 and named.summary.startswith(
        "ranks entered different collectives: rank 1 into all_reduce of 1000"
    )
    assert named.summary.endswith("(rank 0 killed by signal 6)")
    assert named.evidence is not None and named.evidence["collectives"]["1"].startswith("all_reduce of 1000 Float")


def test_an_error_that_names_a_mismatch_is_one_and_any_other_cause_stays_what_it_is() -> None:
    told = "Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE"
    said = RankFailure(2, "user", "RuntimeError", told, "", 5, "forward", 1.0)
    assert classify_failure([said], [], []).reason is Reason.DESYNC
    killed = classify_failure([], [ProcessExit(0, -9, 1.0, "n")], [])
    assert add_desync_evidence(killed, {1: [entry(5, "all_reduce")], 2: [entry(5, "barrier", 0)]}) is killed
