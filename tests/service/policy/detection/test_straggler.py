"""Who keeps the others waiting."""

from collections.abc import Mapping

from pytest import approx

from regroup.service.policy.detection.straggler import Straggler, filter_lasting, find_stragglers
from regroup.workers.contract.messages import RankActivity

FOUR = range(4)


def works(*seconds: float, paced: int = 10, ready: Mapping[int, float] | None = None) -> dict[int, RankActivity]:
    waits = ready or {}
    return {
        rank: RankActivity(20, "forward", 0.0, 0.0, 9, 0.1, paced, work_s, waits.get(rank, 0.0))
        for rank, work_s in enumerate(seconds)
    }


def test_the_one_that_works_longer_is_named_with_what_the_others_do() -> None:
    assert find_stragglers(works(0.1, 0.1, 0.2, 0.12), FOUR, ()) == (Straggler(2, 0.2, 0.1),)
    assert find_stragglers(works(0.1, 0.3), range(2), ()) == (Straggler(1, 0.3, 0.1),)


def test_a_little_longer_or_a_little_time_is_nothing() -> None:
    assert find_stragglers(works(0.1, 0.1, 0.149, 0.1), FOUR, ()) == ()
    assert find_stragglers(works(0.005, 0.005, 0.02, 0.005), FOUR, ()) == ()


def test_who_was_named_stays_so_until_clearly_better() -> None:
    assert find_stragglers(works(0.1, 0.1, 0.13, 0.1), FOUR, (2,)) == (Straggler(2, 0.13, 0.1),)
    assert find_stragglers(works(0.1, 0.1, 0.12, 0.1), FOUR, (2,)) == ()


def test_it_is_too_early_until_every_rank_has_ten_steps_behind_it() -> None:
    assert find_stragglers(works(0.1, 0.1, 0.5, 0.1, paced=9), FOUR, ()) is None
    assert find_stragglers(works(0.1, 0.1, 0.5), FOUR, ()) is None
    assert find_stragglers(works(0.5), range(1), ()) is None


def test_stages_of_a_pipeline_are_not_held_against_each_other() -> None:
    # Ranks 2 and 3 have the head, which is most of the work.
    assert find_stragglers(works(0.1, 0.1, 0.3, 0.3), FOUR, (), stages=2) == ()
    assert find_stragglers(works(0.1, 0.1, 0.3, 0.5), FOUR, (), stages=2) == (Straggler(3, 0.5, 0.3),)
    assert find_stragglers(works(0.1, 0.1, 0.3, 0.3), FOUR, (), stages=4) is None, "each is alone with its work"


def test_a_rank_that_waits_for_a_processor_is_told_apart_from_one_that_works_longer() -> None:
    crowded = works(0.1, 0.1, 0.1, 0.1, ready={0: 0.02, 1: 0.02, 2: 0.2, 3: 0.02})
    (found,) = find_stragglers(crowded, FOUR, ()) or ()
    assert (found.rank, found.is_crowded) == (2, True)
    assert (found.work_s, found.usual_s) == (approx(0.3), approx(0.12))
    slow = works(0.1, 0.1, 0.3, 0.1, ready={0: 0.2, 1: 0.2})
    assert find_stragglers(slow, FOUR, ()) == (Straggler(2, 0.3, 0.1),), "the others wait for processors, it works"


def test_a_crowded_node_is_worth_a_word_once_it_has_been_so_for_half_a_minute() -> None:
    slow, crowded = Straggler(1, 0.3, 0.1), Straggler(2, 0.3, 0.1, is_crowded=True)
    told, since_s = filter_lasting((slow, crowded), (), {}, 100.0)
    assert (told, since_s) == ((slow,), {2: 100.0})
    assert filter_lasting((crowded,), (), since_s, 129.9) == ((), since_s)
    assert filter_lasting((crowded,), (), since_s, 130.0) == ((crowded,), since_s)
    assert filter_lasting((), (), since_s, 110.0) == ((), {}), "it begins anew"
    assert filter_lasting((crowded,), (2,), {}, 200.0)[0] == (crowded,), "what it was named for may change"
