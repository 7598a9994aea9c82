"""Comparison of repeated steps."""

from regroup.service.policy.recovery.restart_check import StateDifference, find_difference, is_complete

EQUAL = {3: {0: {"w": "a", "b": "b"}, 1: {"w": "a"}}, 4: {0: {"w": "c", "b": "b"}, 1: {"w": "c"}}}


def test_equal_states_have_no_difference() -> None:
    assert find_difference(EQUAL, EQUAL) is None


def test_the_first_step_with_a_difference_is_reported_with_all_its_ranks_and_parts() -> None:
    other = {3: {0: {"w": "x", "b": "b"}, 1: {"w": "y"}}, 4: {0: {"w": "c", "b": "other"}, 1: {"w": "c"}}}
    assert find_difference(EQUAL, other) == StateDifference(3, (0, 1), ("w",))


def test_a_part_that_only_one_of_the_states_has_is_a_difference() -> None:
    lacking = {**EQUAL, 4: {0: {"w": "c"}, 1: {"w": "c", "new": "n"}}}
    difference = find_difference(EQUAL, lacking)
    assert difference == StateDifference(4, (0, 1), ("b", "new"))
    assert str(difference) == "after step 4, 2 parts of the state of ranks 0, 1 changed: b, new"


def test_a_message_names_at_most_five_parts() -> None:
    difference = StateDifference(3, (1,), tuple("abcdefg"))
    assert str(difference) == "after step 3, 7 parts of the state of rank 1 changed: a, b, c, d, e, …"


def test_digests_are_complete_with_those_of_every_rank_for_every_step() -> None:
    assert is_complete(EQUAL, (3, 4), 2)
    assert not is_complete(EQUAL, (3, 4), 3)
    assert not is_complete({3: EQUAL[3]}, (3, 4), 2)
