from dataclasses import dataclass

from regroup.api.cli.render.steps import SHOWN, sampled_steps, summarize_steps


@dataclass(frozen=True)
class Row:
    step: int
    loss: float | None = None
    validation_loss: float | None = None
    duration_s: float | None = None
    tokens: int | None = None
    generation: int = 1
    learning_rate: float | None = None


def test_a_summary_has_the_first_and_the_last_step_and_a_bounded_number_between() -> None:
    assert sampled_steps(0) == [] and sampled_steps(3) == [1, 2, 3]
    for total in (20, 21, 150, 1_000_000):
        numbers = sampled_steps(total)
        assert numbers[0] == 1 and numbers[-1] == total and len(numbers) == SHOWN
        assert numbers == sorted(set(numbers))


JOB = {"name": "mine", "step": 4, "steps": 10, "state": "RUNNING"}


def test_a_script_has_a_rate_but_no_loss() -> None:
    rows = [Row(step, duration_s=0.01 * step) for step in (1, 2, 3, 4)]
    assert summarize_steps(JOB, rows, rows) == [
        "mine: step 4/10, RUNNING", "25 ms per step (median of the last 4 steps)"
    ]  # fmt: skip


def test_losses_are_those_of_the_first_and_the_last_step() -> None:
    shown = [Row(1, loss=5.0), Row(4, loss=2.5)]
    newest = [Row(3, validation_loss=2.6), Row(4, loss=2.5, duration_s=2.0, tokens=100)]
    ended = {**JOB, "state": "FAILED", "started_at": 0.0, "finished_at": 90.0}
    assert summarize_steps(ended, shown, newest) == [
        "mine: step 4/10, FAILED", "loss 5 at step 1, 2.5 at step 4", "held-out loss 2.6 at step 3",
        "2 s per step (median of the last step), 50 tokens/s", "1 m 30 s from start to end",
    ]  # fmt: skip


def test_a_job_without_steps_has_one_line() -> None:
    assert summarize_steps({**JOB, "step": 0}, [], []) == ["mine: step 0/10, RUNNING"]
