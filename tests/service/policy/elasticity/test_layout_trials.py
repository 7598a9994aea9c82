"""Layout trials: the order of candidates, and the choice of the fastest."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.layout import Layout
from regroup.service.policy.elasticity.layout_trials import (
    TRIAL_STEPS,
    fastest_candidate,
    is_worth_trying,
    next_candidate,
)

A, B, C = Layout(dp_shard=4), Layout(dp_shard=2, tp=2), Layout(pp=4)


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.floats(0.01, 10.0)), min_size=3, max_size=3))
def test_each_candidate_is_tried_once_in_order_and_the_fastest_is_kept(found: list[float | None]) -> None:
    measured: dict[Layout, float | None] = {}
    for layout, step_s in zip((A, B, C), found, strict=True):
        assert next_candidate((A, B, C), measured) == layout
        measured[layout] = step_s
    kept = next_candidate((A, B, C), measured)
    tried = {layout: step_s for layout, step_s in measured.items() if step_s is not None}
    assert kept == fastest_candidate((A, B, C), measured)
    assert (kept is None) == (not tried)
    assert kept is None or tried[kept] == min(tried.values())


def test_equal_candidates_keep_the_predicted_order() -> None:
    assert fastest_candidate((A, B, C), {C: 1.0, B: 1.0, A: None}) == B


def test_no_candidate_is_tried_near_the_end_of_a_job() -> None:
    assert is_worth_trying(None) and is_worth_trying(100) and not is_worth_trying(TRIAL_STEPS + 1)
