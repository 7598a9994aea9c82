"""Steps with values of wrong types are separated from the others, and of each step the first row counts."""

from typing import Any

from regroup.service.store.jobs.sound_steps import StepEvent, first_of_each, sound_steps
from regroup.workers.contract.messages import StepRow
from tests.support.inputs.step_columns import columns_of


def row(step: Any, **fields: Any) -> StepRow:
    return StepRow(**{**vars(StepRow(1, step, 3.0, None, 2.0, None, None, None, None, None)), **fields})


def test_sound_steps_are_not_copied() -> None:
    steps = columns_of([row(1), row(2, loss=1)])
    assert sound_steps(steps) == (steps, ()) and sound_steps(steps)[0] is steps
    assert first_of_each(steps) is steps


def test_each_malformed_step_becomes_an_event_of_its_own() -> None:
    steps = columns_of([row(1), row("x"), row(3, tokens=True), row(4)])
    sound, malformed = sound_steps(steps)
    assert (sound.seq, sound.step) == ([1, 4], [1, 4])
    (first, first_error), (second, second_error) = malformed
    assert first == StepEvent(2, "step:1:x", "step", 1, 3.0, steps.row(1)) and "step='x'" in str(first_error)
    assert (second.seq, second.key) == (3, "step:1:3") and "tokens=True" in str(second_error)


def test_an_event_has_no_place_or_time_that_the_database_would_refuse() -> None:
    _, ((event, _), (other, _)) = sound_steps(
        columns_of([row(1, generation="a", time_s=None), row(2, generation=True)])
    )
    assert (event.generation, event.time_s, event.key) == (0, 0.0, "step:a:1")
    assert (other.generation, other.time_s) == (0, 3.0)


def test_the_first_row_of_a_step_counts() -> None:
    steps = columns_of([row(1, loss=1.0), row(1, loss=2.0), row(1, generation=2), row(2), row(1, loss=3.0)])
    assert first_of_each(steps).seq == [1, 3, 4]
