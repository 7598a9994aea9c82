"""The memory of mirrors: reduced level by level on nodes that are short of memory, and restored later."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.policy.recovery.mirror_memory import (
    MirrorAllowance,
    MirrorLevel,
    lower_allowance,
    update_allowance,
)


def test_a_refusal_lowers_the_level_by_one_and_time_restores_it() -> None:
    once = lower_allowance(MirrorAllowance(), "no memory", 100.0)
    assert (once.level, once.why, once.pause_s) == (MirrorLevel.ONE, "no memory", 60.0)
    assert update_allowance(once, "", 159.0) == once
    back = update_allowance(once, "", 160.0)
    assert (back.level, back.why) == (MirrorLevel.TWO, "")
    again = lower_allowance(back, "no memory", 161.0)
    assert (again.level, again.pause_s) == (MirrorLevel.ONE, 120.0), "the pause doubles"
    assert lower_allowance(lower_allowance(again, "no memory", 162.0), "no memory", 163.0).level is MirrorLevel.NONE


def test_the_pause_doubles_up_to_half_an_hour() -> None:
    allowed, pauses = MirrorAllowance(), list[float]()
    for now_s in range(1, 9):
        allowed = lower_allowance(allowed, "no memory", float(now_s))
        pauses.append(allowed.pause_s)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]


def test_a_lasting_shortage_removes_all_mirrors_until_it_ends() -> None:
    first = update_allowance(MirrorAllowance(), "b: 9 MiB are free", 10.0)
    assert first.level is MirrorLevel.ONE
    assert update_allowance(first, "b: 9 MiB are free", 20.0) == first
    none = update_allowance(first, "b: 9 MiB are free", 25.0)
    assert none.level is MirrorLevel.NONE
    still = update_allowance(none, "b: 8 MiB are free", 5000.0)
    assert (still.level, still.why) == (MirrorLevel.NONE, "b: 8 MiB are free")
    assert update_allowance(still, "", 5000.0 + still.pause_s - 1).level is MirrorLevel.NONE
    assert update_allowance(still, "", 5000.0 + still.pause_s).level is MirrorLevel.ONE


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["refused", "short", "enough"]), max_size=60))
def test_the_level_changes_by_one_and_a_reduced_level_has_a_reason(reports: list[str]) -> None:
    allowed, now_s = MirrorAllowance(), 0.0
    for what in reports:
        now_s += 40.0
        before = allowed
        allowed = (
            lower_allowance(allowed, what, now_s)
            if what == "refused"
            else update_allowance(allowed, {"short": what}.get(what, ""), now_s)
        )
        assert abs(allowed.level - before.level) <= 1
        assert allowed.is_reduced == bool(allowed.why)
