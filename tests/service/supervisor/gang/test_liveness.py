"""Liveness of nodes."""

from regroup.service.supervisor.gang.liveness import LOST_S, UNREPORTED_S, Liveness


def test_only_expected_nodes_can_be_unresponsive() -> None:
    now = [0.0]
    liveness = Liveness(lambda: now[0])
    liveness.expect(["a", "b"])
    liveness.record_report("substitute")  # A substitute that is being prepared.
    found: list[str] = []
    for second in range(1, int(LOST_S) + 3):
        now[0] = float(second)
        liveness.record_report("a")
        found = liveness.silent_nodes()
    assert found == ["b"]


def test_the_liveness_check_can_be_disabled() -> None:
    now = [0.0]
    liveness = Liveness(lambda: now[0], is_disabled=True)
    liveness.expect(["a"])
    now[0] = LOST_S + 1
    assert liveness.silent_nodes() == liveness.silent_nodes() == []


def test_heartbeats_replace_reports_for_a_limited_time() -> None:
    now = [0.0]
    liveness = Liveness(lambda: now[0])
    liveness.expect(["late", "mute"])
    silent_s: dict[str, float] = {}
    while len(silent_s) < 2:
        now[0] += 0.5
        liveness.record_heartbeat("late")
        liveness.record_heartbeat("substitute")
        for node in liveness.silent_nodes():
            silent_s.setdefault(node, now[0])
    assert LOST_S < silent_s["mute"] <= LOST_S + 1
    assert UNREPORTED_S < silent_s["late"] <= UNREPORTED_S + LOST_S + 1


def test_a_supervisor_that_was_suspended_waits_for_heartbeats_first() -> None:
    now = [0.0]
    liveness = Liveness(lambda: now[0])
    liveness.expect(["a", "b"])
    now[0] = 3 * UNREPORTED_S
    assert liveness.silent_nodes() == []
    liveness.record_heartbeat("a")
    for _ in range(4):
        now[0] += 1.0
        assert "a" not in liveness.silent_nodes()
    assert liveness.silent_nodes() == ["b"]


def test_an_agent_reports_less_often_only_while_its_heartbeats_arrive() -> None:
    now = [0.0]
    liveness = Liveness(lambda: now[0])
    liveness.expect(["a"])
    liveness.record_report("a")
    assert not liveness.has_heartbeats("a"), "a firewall may drop them: then reports are the only sign"
    liveness.record_heartbeat("a")
    assert liveness.has_heartbeats("a")
    now[0] += LOST_S / 2
    assert not liveness.has_heartbeats("a")
