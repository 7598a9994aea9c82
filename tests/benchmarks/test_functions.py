"""Tests of the figures of the functions benchmark, and of the equality of both arms' work."""

from benchmarks.functions import result
from benchmarks.trials.trial import KillPoint, Trial

KILL_POINT = KillPoint(rank=1, step=9, phase="optimizer")
CONTROL = {"builtin": {"digest": "b"}, "function": {"digest": "f"}, "function-on-shards": {"digest": "s"}}


def trial(arm: str, kill: float, digest: str) -> Trial:
    return Trial(arm, KILL_POINT, 2.0, kill, 2 * kill, 0, {"digest": digest})


def test_ratios_divide_medians_by_those_of_the_built_in_trainer() -> None:
    trials = [trial("builtin", kill, "b") for kill in (0.5, 1.0, 9.0)]
    trials += [trial("function", kill, "f") for kill in (1.0, 1.2, 1.3)]
    trials += [trial("function-on-shards", 1.1, "s")]
    document = result(trials, [], CONTROL)
    assert document["ratio_on_shards"]["kill_to_first_step"] == 1.1
    assert document["ratio"] == {"submit_to_first_step": 1.0, "kill_to_first_step": 1.2, "kill_to_new_step": 1.2}
    assert document["bitwise_equal"] == dict.fromkeys(CONTROL, True)


def test_a_different_digest_a_failure_or_no_trials_means_not_equal() -> None:
    mixed = [trial("function", 1.0, "f"), trial("function", 1.0, "other"), trial("builtin", 1.0, "b")]
    equal = {"builtin": True, "function": False, "function-on-shards": False}
    assert result(mixed, [], CONTROL)["bitwise_equal"] == equal
    failed = result([trial("builtin", 1.0, "b")], ["builtin: job ended FAILED"], CONTROL)
    assert failed["bitwise_equal"] == dict.fromkeys(CONTROL, False) and "ratio" not in failed
