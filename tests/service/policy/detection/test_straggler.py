"""Stragglers: ranks that delay the others."""

import statistics
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from regroup.service.policy.detection.straggler import Straggler, filter_lasting, find_stragglers
from regroup.workers.contract.rank_activity import RankActivity

FOUR = range(4)


def activities(*seconds: float, paced: int = 10, ready: Mapping[int, float] | None = None) -> dict[int, RankActivity]:
    ready_s = ready or {}
    return {
        rank: RankActivity(20, "forward", 0.0, 0.0, 9, 0.1, paced, work_s, ready_s.get(rank, 0.0))
        for rank, work_s in enumerate(seconds)
    }


def test_a_straggler_is_reported_with_the_usual_work_time() -> None:
    assert find_stragglers(activities(0.1, 0.1, 0.2, 0.12), FOUR, ()) == (Straggler(2, 0.2, 0.1),)
    assert find_stragglers(activities(0.1, 0.3), range(2), ()) == (Straggler(1, 0.3, 0.1),)


def test_small_differences_are_ignored() -> None:
    assert find_stragglers(activities(0.1, 0.1, 0.149, 0.1), FOUR, ()) == ()
    assert find_stragglers(activities(0.005, 0.005, 0.02, 0.005), FOUR, ()) == ()


def test_a_straggler_is_cleared_only_below_a_lower_threshold() -> None:
    assert find_stragglers(activities(0.1, 0.1, 0.13, 0.1), FOUR, (2,)) == (Straggler(2, 0.13, 0.1),)
    assert find_stragglers(activities(0.1, 0.1, 0.12, 0.1), FOUR, (2,)) == ()


def test_stragglers_are_unknown_before_each_rank_has_ten_steps() -> None:
    assert find_stragglers(activities(0.1, 0.1, 0.5, 0.1, paced=9), FOUR, ()) is None
    assert find_stragglers(activities(0.1, 0.1, 0.5), FOUR, ()) is None
    assert find_stragglers(activities(0.5), range(1), ()) is None


def test_pipeline_stages_are_not_compared_with_each_other() -> None:
    # Ranks 2 and 3 have the head, which is most of the work.
    assert find_stragglers(activities(0.1, 0.1, 0.3, 0.3), FOUR, (), stages=2) == ()
    assert find_stragglers(activities(0.1, 0.1, 0.3, 0.5), FOUR, (), stages=2) == (Straggler(3, 0.5, 0.3),)
    assert find_stragglers(activities(0.1, 0.1, 0.3, 0.3), FOUR, (), stages=4) is None, "each stage has one rank"


def test_a_rank_that_waits_for_a_processor_is_crowded() -> None:
    crowded = activities(0.1, 0.1, 0.1, 0.1, ready={0: 0.02, 1: 0.02, 2: 0.2, 3: 0.02})
    found = next(iter(find_stragglers(crowded, FOUR, ()) or ()))
    assert (found.rank, found.is_crowded) == (2, True)
    assert (found.work_s, found.usual_s) == (approx(0.3), approx(0.12))
    slow = activities(0.1, 0.1, 0.3, 0.1, ready={0: 0.2, 1: 0.2})
    assert find_stragglers(slow, FOUR, ()) == (Straggler(2, 0.3, 0.1),), "only the other ranks wait for processors"


def test_a_crowded_node_is_reported_after_half_a_minute() -> None:
    slow, crowded = Straggler(1, 0.3, 0.1), Straggler(2, 0.3, 0.1, is_crowded=True)
    reported, since_s = filter_lasting((slow, crowded), (), {}, 100.0)
    assert (reported, since_s) == ((slow,), {2: 100.0})
    assert filter_lasting((crowded,), (), since_s, 129.9) == ((), since_s)
    assert filter_lasting((crowded,), (), since_s, 130.0) == ((crowded,), since_s)
    assert filter_lasting((), (), since_s, 110.0) == ((), {}), "the time starts again"
    assert filter_lasting((crowded,), (2,), {}, 200.0)[0] == (crowded,), "a reported rank may become crowded"


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12))
def test_a_rank_is_compared_with_the_median_of_the_others(seconds: list[float]) -> None:
    expected = [
        (rank, own_s, usual_s)
        for rank, own_s in enumerate(seconds)
        if own_s > 1.5 * (usual_s := statistics.median(seconds[:rank] + seconds[rank + 1 :])) and own_s - usual_s > 0.02
    ]
    found = find_stragglers(activities(*seconds), range(len(seconds)), ()) or ()
    assert [(each.rank, each.work_s, each.usual_s) for each in found] == expected


def test_the_ranks_of_a_large_job_are_compared_quickly() -> None:
    """Find a straggler in seconds. A search of all others for each of 16,384 ranks would take minutes."""
    many = activities(*(0.1 + rank % 7 * 1e-3 for rank in range(16_383)), 0.5)
    found = find_stragglers(many, range(16_384), ()) or ()
    assert [each.rank for each in found] == [16_383]
