"""Quarantines: their causes and durations. A node without faults is never quarantined."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import (
    QUARANTINE_AT,
    WEIGHTS,
    NodeEvent,
    NodeEventKind,
    NodeHealth,
    QuarantinePolicy,
    assess_node,
    assess_nodes,
    is_silence_of,
    node_event_kind_of,
    proof_key,
    silence_key,
)

HOUR = 3600.0
RULE = QuarantinePolicy(half_life_s=HOUR, quarantine_s=600.0)
T0 = 1_000_000.0


def event(
    kind: NodeEventKind, at_s: float, *, node: str = "a", job: str = "", actor: str = "", message: str = ""
) -> NodeEvent:
    return NodeEvent(node, kind, T0 + at_s, f"{node}:{kind}:{at_s}:{job}", job, actor, message)


def losses(*at_s: float) -> list[NodeEvent]:
    return [event(NodeEventKind.NODE_LOST, at) for at in at_s]


def after(events: Sequence[NodeEvent], at_s: float, rule: QuarantinePolicy = RULE) -> NodeHealth:
    return assess_node(events, T0 + at_s, rule)


def test_three_losses_in_a_short_time_cause_a_quarantine_and_one_does_not() -> None:
    assert after(losses(0, 60), 61).closed_reason == ""
    health = after(losses(0, 60, 120), 121)
    assert health.quarantined_until_s == T0 + 120 + 600 and health.quarantines == 1
    assert after(losses(0, 60, 120), 719).closed_reason and not after(losses(0, 60, 120), 720).closed_reason


def test_an_unresponsive_node_is_closed_only_while_ranks_may_run_there() -> None:
    silent = [event(NodeEventKind.SILENT, 0)]
    assert after(silent, 59).closed_reason == "unresponsive: ranks may run there until 1970-01-12 13:47:40 UTC"
    assert after(silent, 60).closed_reason == "" and after(silent, 60).score == pytest.approx(1, abs=0.02)
    assert after([*silent, event(NodeEventKind.UNCORDONED, 10, actor="ann")], 11).closed_reason == ""


def test_a_node_without_processes_of_the_job_opens_with_the_same_score() -> None:
    first, second = event(NodeEventKind.SILENT, 0), event(NodeEventKind.SILENT, 5, job="other")
    proof = replace(event(NodeEventKind.CLEARED, 8), key=proof_key(first))
    assert after([first, proof], 9).closed_reason == "" and after([first], 9).score == after([first, proof], 9).score
    assert "until 1970-01-12 13:47:45" in after([first, second, proof], 9).closed_reason, (
        "the other job may still run there"
    )
    assert after([event(NodeEventKind.CORDONED, 1, actor="ann"), first, proof], 9).closed_reason == "cordoned by ann"


def test_only_the_unresponsive_node_itself_can_prove_that_it_is_clear() -> None:
    silent = replace(event(NodeEventKind.SILENT, 0), key=silence_key("a" * 40, "reservation"))
    assert is_silence_of(silent, "a" * 40) and not is_silence_of(silent, "b" * 40)


def test_three_losses_in_a_day_cause_no_quarantine() -> None:
    assert after(losses(0, 4 * HOUR, 8 * HOUR), 8 * HOUR + 1).closed_reason == ""


def test_each_further_quarantine_of_a_flapping_node_is_twice_as_long() -> None:
    times, found = [0.0, 60.0, 120.0], list[float]()
    for _ in range(5):
        until_s = after(losses(*times), times[-1]).quarantined_until_s
        assert until_s is not None
        found.append(until_s - T0 - times[-1])
        times.append(until_s - T0 + 60)  # The node is used and lost again.
    assert found == [600, 1200, 2400, 4800, 9600]
    assert after(losses(*times[:-1]), times[-1] + 200 * HOUR) == NodeHealth(), "all faults have expired"


def test_five_losses_within_minutes_cause_one_quarantine() -> None:
    health = after(losses(0, 60, 120, 180, 240), 241)
    assert health.quarantines == 1 and health.quarantined_until_s == T0 + 240 + 600


def test_faults_that_follow_at_once_count_as_one() -> None:
    jobs = [event(NodeEventKind.AGENT_LOST, at, job=f"job-{at}") for at in range(5)]
    health = after([*jobs, *losses(14)], 15)
    assert health.closed_reason == "" and health.score == pytest.approx(1, abs=0.01) and len(health.faults) == 6


@pytest.mark.parametrize("kind", [NodeEventKind.PREFLIGHT, NodeEventKind.UNKILLABLE])
def test_a_fault_of_the_node_itself_causes_a_quarantine_at_once(kind: NodeEventKind) -> None:
    health = after([event(kind, 0, message="its matmul is wrong")], 1)
    assert health.quarantined_until_s == T0 + 600
    assert health.closed_reason == (
        f"quarantined until 1970-01-12 13:56:40 UTC (1 x {kind}, the last at 1970-01-12 13:46:40 UTC: "
        "its matmul is wrong)"
    )


@pytest.mark.parametrize("kind", [NodeEventKind.OUT_OF_MEMORY, NodeEventKind.BLAMED])
def test_faults_that_one_job_may_cause_do_not_quarantine_a_node(kind: NodeEventKind) -> None:
    same = [event(kind, 60 * n, job="j") for n in range(50)]
    assert after(same, 3000).score <= WEIGHTS[kind]
    several = [event(kind, 60 * n, job=f"j{n}") for n in range(6)]
    assert after(several, 301).closed_reason


def test_a_cordon_lasts_until_uncordon_which_also_clears_the_score() -> None:
    cordoned = event(NodeEventKind.CORDONED, 10, actor="ann", message="its disk is exchanged")
    assert after([cordoned], 300 * HOUR).closed_reason == "cordoned by ann: its disk is exchanged"
    bad = losses(0, 60, 120)
    trusted = event(NodeEventKind.UNCORDONED, 130, actor="ann")
    health = after([*bad, cordoned, trusted], 131)
    assert (health.closed_reason, health.score, health.cordon) == ("", 0.0, None)
    assert after([*bad, trusted, *losses(200)], 201).closed_reason == "", "the score starts at zero again"
    assert after([event(NodeEventKind.UNCORDONED, 5), cordoned], 11).cordon is cordoned


def test_without_quarantine_nodes_only_have_a_score() -> None:
    health = after(losses(0, 60, 120, 180), 181, QuarantinePolicy(HOUR, 0.0))
    assert health.score > QUARANTINE_AT and health.closed_reason == ""


def test_each_node_has_its_own_history() -> None:
    found = assess_nodes([*losses(0, 60), event(NodeEventKind.NODE_LOST, 120, node="b")], T0 + 121, RULE)
    assert found["a"].score == pytest.approx(2, abs=0.05) and found["b"].score == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("reason", "evidence", "kind"),
    [
        (Reason.AGENT_LOST, {}, NodeEventKind.AGENT_LOST),
        (Reason.HANG, {"kind": "hang"}, NodeEventKind.BLAMED),
        (Reason.RANK_EXIT, {"out_of_memory": True}, NodeEventKind.OUT_OF_MEMORY),
        (Reason.RANK_EXIT, {"device": "GPU 1 is lost", "out_of_memory": True}, NodeEventKind.DEVICE),
        (Reason.RANK_EXIT, {}, None),
        (Reason.USER_ERROR, {"kind": "ValueError"}, None),
        (Reason.ZYGOTE_EXIT, {}, None),
    ],
)
def test_the_reason_of_an_incident_decides_the_fault_of_its_node(
    reason: Reason, evidence: dict[str, object], kind: NodeEventKind | None
) -> None:
    assert node_event_kind_of(reason, evidence) is kind


FAULTS = st.lists(st.tuples(st.sampled_from(sorted(WEIGHTS)), st.floats(0, 10 * HOUR), st.sampled_from("xyz")))


@given(FAULTS, st.floats(10 * HOUR, 40 * HOUR), st.floats(0, 40 * HOUR))
def test_a_score_decays_without_faults_and_never_exceeds_their_weights(
    faults: list[tuple[NodeEventKind, float, str]], then_s: float, later_s: float
) -> None:
    events = [event(kind, at_s, job=job) for kind, at_s, job in faults]
    before, later = after(events, then_s), after(events, then_s + later_s)
    assert 0 <= later.score <= before.score + 1e-9 <= sum(WEIGHTS[kind] for kind, _, _ in faults) + 1e-6
    assert later.quarantines <= before.quarantines <= len(faults)
    assert after(events, then_s + 1000 * HOUR) == NodeHealth()


@given(FAULTS, st.floats(0, 80 * HOUR))
def test_no_sequence_of_faults_closes_a_node_for_more_than_a_day(
    faults: list[tuple[NodeEventKind, float, str]], at_s: float
) -> None:
    health = after([event(kind, time_s, job=job) for kind, time_s, job in faults], at_s)
    if not any(T0 + time_s <= T0 + at_s for _, time_s, _ in faults):
        assert health == NodeHealth(), "a clean history is never a quarantine"
    if health.quarantined_until_s is not None:
        assert T0 + at_s < health.quarantined_until_s <= health.faults[-1].time_s + 24 * HOUR
