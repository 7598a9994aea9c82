"""Who keeps the others waiting."""

from regroup.service.policy.straggler import Straggler, find_stragglers
from regroup.workers.contract import Dwell

FOUR = range(4)


def works(*seconds: float, paced: int = 10) -> dict[int, Dwell]:
    return {rank: Dwell(20, "forward", 0.0, 0.0, 9, 0.1, paced, work_s) for rank, work_s in enumerate(seconds)}


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
