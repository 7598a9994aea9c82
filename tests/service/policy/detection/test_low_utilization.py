"""Low utilization of devices, and its consequences."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.policy.detection.low_utilization import (
    WELL,
    LowUtilizationPolicy,
    UtilizationSample,
    assess_utilization,
    recent_samples,
)

RULE = LowUtilizationPolicy(below=0.05, after_s=600.0, suspend_after_s=1800.0)


def samples(
    until_s: float, steps_per_s: float, *, mfu: float | None = None, step_s: float | None = 1.0
) -> list[UtilizationSample]:
    """Return one sample per minute."""
    times = [60.0 * number for number in range(int(until_s // 60) + 1)]
    return [UtilizationSample(at_s, int(at_s * steps_per_s), step_s, mfu) for at_s in times]


def test_utilization_is_unknown_without_measurements() -> None:
    assert assess_utilization((), RULE, None, 1.0) is None
    assert assess_utilization(samples(540, 0.01), RULE, None, 1.0) is None
    assert assess_utilization(samples(600, 0.0, step_s=None), RULE, None, None) is None, "a script without step counts"


def test_the_reported_mfu_counts_only_for_the_time_in_steps() -> None:
    busy = assess_utilization(samples(600, 1.0, mfu=0.4), RULE, None, 1.0)
    assert busy is not None and abs(busy.share - 0.4) < 1e-9 and busy.low_since_s is None
    poor = assess_utilization(samples(600, 1.0, mfu=0.01), RULE, None, 1.0)
    assert poor is not None and poor.low_since_s == 600.0 and not poor.suspend
    stuck = assess_utilization(samples(600, 0.0, mfu=0.4), RULE, None, 1.0)
    assert stuck is not None and stuck.share == 0.0, "the last step ended long ago"


def test_without_mfu_the_usual_step_time_is_the_reference() -> None:
    full = assess_utilization(samples(600, 1.0), RULE, None, 1.0)
    assert full is not None and full.share == 1.0
    starved = assess_utilization(samples(600, 0.02, step_s=50.0), RULE, None, 1.0)
    assert starved is not None and abs(starved.share - 0.02) < 1e-9 and starved.low_since_s == 600.0


def test_a_job_with_low_use_must_exceed_the_threshold_clearly() -> None:
    between = samples(600, 0.06)
    assert assess_utilization(between, RULE, None, 1.0).low_since_s is None  # type: ignore[union-attr]
    assert assess_utilization(between, RULE, 100.0, 1.0).low_since_s == 100.0  # type: ignore[union-attr]
    assert assess_utilization(samples(600, 0.09), RULE, 100.0, 1.0).low_since_s is None  # type: ignore[union-attr]


def test_a_job_with_lasting_low_use_is_suspended_only_if_configured() -> None:
    low = samples(3600, 0.01)
    assert assess_utilization(low, RULE, 1801.0, 1.0).suspend is False  # type: ignore[union-attr]
    assert assess_utilization(low, RULE, 1800.0, 1.0).suspend is True  # type: ignore[union-attr]
    assert assess_utilization(low, LowUtilizationPolicy(0.05, 600.0), 0.0, 1.0).suspend is False  # type: ignore[union-attr]
    assert assess_utilization(low, LowUtilizationPolicy(0.0, 600.0, 0.0), None, 1.0).low_since_s is None, "disabled"  # type: ignore[union-attr]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(1, 400), st.integers(0, 200)), min_size=1, max_size=30), st.booleans())
def test_a_share_is_between_0_and_1_and_compared_only_with_the_threshold(
    moves: list[tuple[float, int]], was_low: bool
) -> None:
    at_s, step, observed = 0.0, 0, [UtilizationSample(0.0, 0, 1.0)]
    for passed_s, steps in moves:
        at_s, step = at_s + passed_s, step + steps
        observed.append(UtilizationSample(at_s, step, 1.0))
    recent = recent_samples(observed, RULE)
    assert recent[-1] == observed[-1] and recent_samples(recent, RULE) == recent
    use, since_s = assess_utilization(observed, RULE, 0.0 if was_low else None, 1.0), 0.0 if was_low else at_s
    assert (use is None) == (at_s < RULE.after_s)
    if use is not None:
        assert 0.0 <= use.share <= 1.0
        assert use.low_since_s == (since_s if use.share < RULE.below * (WELL if was_low else 1.0) else None)
