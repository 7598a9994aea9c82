"""Comparison of repeated steps."""

import pytest

from regroup.service.policy.recovery.restart_check import (
    Digests,
    ProgramOverlap,
    StateDifference,
    compare_program,
    find_difference,
    is_complete,
)

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


# ------------------------------------------------------------------------------------------------ programs


def taken(first: int, states: str, **changes: str) -> Digests:
    """Return digests of two ranks for consecutive steps, one letter for each. `changes`: rank 1 at the step `sN`."""
    steps = enumerate(states, first)
    return {step: {0: {"w": state}, 1: {"w": changes.get(f"s{step}", state)}} for step, state in steps}


WHOLE = taken(1, "abcdefg")


@pytest.mark.parametrize("start", [4, None], ids=["counted", "not counted"])
def test_repeated_steps_of_a_program_are_compared_from_its_checkpoint(start: int | None) -> None:
    first = 5 if start is not None else 8  # a program that does not count its steps continues with the next number
    assert compare_program(WHOLE, taken(first, "ef"), start, 2) == ProgramOverlap(4, (5, 6), None, False)
    assert compare_program(WHOLE, taken(first, "efgh"), start, 2) == ProgramOverlap(4, (5, 6, 7), None, True)
    different = compare_program(WHOLE, taken(first, "ex"), start, 2)
    assert different == ProgramOverlap(4, (5, 6), StateDifference(6, (0, 1), ("w",)), True)


@pytest.mark.parametrize("start", [0, None])
def test_a_first_step_that_equals_none_is_a_difference_from_the_one_most_like_it(start: int | None) -> None:
    before = {step: {0: {"w": state, "optim.m": state}} for step, state in enumerate("abcd", 1)}
    overlap = compare_program(before, {5: {0: {"w": "c", "optim.m": "lost"}}}, start, 1)
    assert overlap == ProgramOverlap(None, (), StateDifference(None, (0,), ("optim.m",)), True)
    assert str(overlap.difference) == "after the first step, 1 part of the state of rank 0 changed: optim.m"


def test_a_program_that_started_over_has_no_checkpoint() -> None:
    for start in (0, None):
        overlap = compare_program(WHOLE, taken(1 if start == 0 else 8, "ab"), start, 2)
        assert overlap is not None and overlap.start == 0


def test_one_rank_that_differs_is_named_and_incomplete_steps_wait() -> None:
    overlap = compare_program(WHOLE, taken(7, "g", s7="x"), 6, 2)
    assert overlap == ProgramOverlap(6, (7,), StateDifference(7, (1,), ("w",)), True)
    assert compare_program(WHOLE, {7: {0: {"w": "g"}}}, 6, 2) is None
    assert compare_program(WHOLE, {}, 6, 2) is None


def test_a_program_that_continues_behind_the_observed_steps_has_nothing_to_compare() -> None:
    assert compare_program(WHOLE, taken(8, "h"), 7, 2) == ProgramOverlap(7, (), None, True)
