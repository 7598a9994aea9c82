"""Less memory for mirrors where nodes are short of it, in order, and more again later."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.policy.recovery.mirror_memory import Allowed, Level, judged, lowered


def test_a_refusal_takes_one_level_and_time_gives_it_back() -> None:
    once = lowered(Allowed(), "no room", 100.0)
    assert (once.level, once.why, once.pause_s) == (Level.ONE, "no room", 60.0)
    assert judged(once, "", 159.0) == once
    back = judged(once, "", 160.0)
    assert (back.level, back.why) == (Level.TWO, "")
    again = lowered(back, "no room", 161.0)
    assert (again.level, again.pause_s) == (Level.ONE, 120.0), "a node at its limit is not pushed over it every minute"
    assert lowered(lowered(again, "no room", 162.0), "no room", 163.0).level is Level.NONE


def test_memory_that_stays_short_takes_all_and_nothing_comes_back_before_it_does() -> None:
    first = judged(Allowed(), "b: 9 MiB are free", 10.0)
    assert first.level is Level.ONE
    assert judged(first, "b: 9 MiB are free", 20.0) == first
    none = judged(first, "b: 9 MiB are free", 25.0)
    assert none.level is Level.NONE
    still = judged(none, "b: 8 MiB are free", 5000.0)
    assert (still.level, still.why) == (Level.NONE, "b: 8 MiB are free")
    assert judged(still, "", 5000.0 + still.pause_s - 1).level is Level.NONE
    assert judged(still, "", 5000.0 + still.pause_s).level is Level.ONE


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["refused", "short", "well"]), max_size=60))
def test_it_moves_by_one_level_and_says_why_as_long_as_it_is_less(news: list[str]) -> None:
    allowed, now_s = Allowed(), 0.0
    for what in news:
        now_s += 40.0
        before = allowed
        allowed = (
            lowered(allowed, what, now_s)
            if what == "refused"
            else judged(allowed, {"short": what}.get(what, ""), now_s)
        )
        assert abs(allowed.level - before.level) <= 1
        assert allowed.is_less == bool(allowed.why)
