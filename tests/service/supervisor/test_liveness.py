"""Whose silence counts."""

from regroup.service.supervisor.liveness import LOST_S, UNREPORTED_S, Liveness


def test_only_those_that_are_expected_are_missed() -> None:
    now = [0.0]
    pulse = Liveness(lambda: now[0])
    pulse.expect(["a", "b"])
    pulse.record_report("comes")  # it is made ready for a job that is not there yet
    found: list[str] = []
    for second in range(1, int(LOST_S) + 3):
        now[0] = float(second)
        pulse.record_report("a")
        found = pulse.silent_nodes()
    assert found == ["b"]


def test_in_a_rehearsal_silence_may_go_unnoticed() -> None:
    now = [0.0]
    pulse = Liveness(lambda: now[0], is_disabled=True)
    pulse.expect(["a"])
    now[0] = LOST_S + 1
    assert pulse.silent_nodes() == pulse.silent_nodes() == []


def test_signs_of_life_stand_in_for_reports_for_a_while() -> None:
    now = [0.0]
    pulse = Liveness(lambda: now[0])
    pulse.expect(["late", "mute"])
    silent_s: dict[str, float] = {}
    while len(silent_s) < 2:
        now[0] += 0.5
        pulse.record_heartbeat("late")
        pulse.record_heartbeat("comes")
        for node in pulse.silent_nodes():
            silent_s.setdefault(node, now[0])
    assert LOST_S < silent_s["mute"] <= LOST_S + 1
    assert UNREPORTED_S < silent_s["late"] <= UNREPORTED_S + LOST_S + 1


def test_whoever_was_asleep_hears_signs_and_reports_first() -> None:
    now = [0.0]
    pulse = Liveness(lambda: now[0])
    pulse.expect(["a", "b"])
    now[0] = 3 * UNREPORTED_S
    assert pulse.silent_nodes() == []
    pulse.record_heartbeat("a")
    for _ in range(4):
        now[0] += 1.0
        assert "a" not in pulse.silent_nodes()
    assert pulse.silent_nodes() == ["b"]
