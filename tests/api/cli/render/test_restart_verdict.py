"""Verdict of a restart check on the screen."""

from typing import Any

from regroup.api.cli.render.restart_verdict import group_parts, render_verdict
from regroup.api.client.restart_check import RestartVerdict


def different(*parts: str, ranks: tuple[int, ...] = (0, 1)) -> RestartVerdict:
    return RestartVerdict("1", "mine-check", "different", "…", 3, ranks, parts)


def rendered(verdict: RestartVerdict, workload: str = "function") -> list[str]:
    return render_verdict(verdict, workload)


def test_equal_states_take_one_line() -> None:
    lines = rendered(RestartVerdict("1", "mine-check", "equal", "steps 3 to 4 are equal"))
    assert lines == ["EQUAL: a restart from memory changes nothing: steps 3 to 4 are equal on every rank"]


def test_a_difference_names_its_parts_by_kind_and_what_to_do() -> None:
    lines = rendered(different("0.weight", "optim.0.weight.exp_avg", "stateful schedule", "own:1:buffer.seen"))
    assert lines[:5] == [
        "DIFFERENT: a restart from memory changes the state after step 3 on ranks 0, 1",
        "  parameters     0.weight",
        "  optimizers     optim.0.weight.exp_avg",
        "  buffers        buffer.seen",
        "  other objects  stateful schedule",
    ]
    assert "run.track()" in lines[5] and "determinism: strict" in lines[6]


def test_long_lists_are_cut_and_one_rank_is_singular() -> None:
    lines = rendered(different(*(f"{number}.weight" for number in range(10)), ranks=(1,)))
    assert lines[0].endswith("on rank 1")
    assert lines[1].endswith("6.weight, 7.weight, and 2 more")


def test_random_numbers_alone_have_advice_of_their_own() -> None:
    assert "another number of random numbers" in rendered(different("random"))[2]
    assert "run.track()" in rendered(different("random", "0.weight"))[3]


def test_the_advice_for_the_built_in_trainer_does_not_mention_tracking() -> None:
    assert not any("run.track" in line for line in rendered(different("0.weight"), "builtin"))


def test_without_a_comparison_the_cause_is_named() -> None:
    verdict = RestartVerdict("1", "mine-check", "not_compared", "recovery.verify needs more than 4 steps")
    assert rendered(verdict) == [
        "NOT COMPARED: recovery.verify needs more than 4 steps",
        "→ `regroup why 1` shows the cause.",
    ]


def test_copies_of_several_ranks_are_one_part() -> None:
    grouped: Any = group_parts(["own:0:0.weight", "own:1:0.weight", "own-part:1:optim.0.weight.exp_avg"])
    assert grouped == {"parameters": ["0.weight"], "optimizers": ["optim.0.weight.exp_avg"]}


def test_a_program_restarts_from_its_own_checkpoint() -> None:
    equal = rendered(RestartVerdict("1", "mine-check", "equal", "step 7 is equal"), "script")
    assert equal == ["EQUAL: a restart from the program's checkpoint changes nothing: step 7 is equal on every rank"]
    lines = rendered(different("weight", "optim.momentum_buffer"), "ray_train")
    assert lines[0].startswith("DIFFERENT: a restart from the program's checkpoint changes the state after step 3")
    assert lines[2] == "  optimizers  optim.momentum_buffer"
    unknown = RestartVerdict("1", "mine-check", "different", "…", None, (0,), ("weight",))
    assert rendered(unknown, "script")[0].endswith("changes the state after its first step on rank 0")
    assert "lacks something that training changes" in lines[3] and not any("run.track" in line for line in lines)
