"""Whose silence counts."""

from regroup.service.runtime.pulse import LOST_S, Pulse


def test_only_those_that_are_expected_are_missed() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    pulse.expect(["a", "b"])
    pulse.beat("comes")  # it is made ready for a job that is not there yet
    found: list[str] = []
    for second in range(1, int(LOST_S) + 3):
        now[0] = float(second)
        pulse.beat("a")
        found = pulse.silent()
    assert found == ["b"]


def test_in_a_rehearsal_silence_may_go_unnoticed() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0], is_deaf=True)
    pulse.expect(["a"])
    now[0] = LOST_S + 1
    assert pulse.silent() == pulse.silent() == []
