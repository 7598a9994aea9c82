"""Candidates of the planner, run one after the other for a few steps each: which comes next, which is kept. Pure."""

from collections.abc import Mapping, Sequence

from regroup.service.domain.layout import Layout

TRIAL_STEPS = 8
"""Steps that a candidate is judged by, the first two of its generation apart."""
MAX_CANDIDATES = 3
TRIAL_TIMEOUT_S = 120.0
"""A candidate that has not come about after so long is passed over."""
_WORTH = 3
"""A trial is begun only where the job has so many times its steps left."""


def next_candidate(candidates: Sequence[Layout], seen: Mapping[Layout, float | None]) -> Layout | None:
    """The candidate to go to: the next that was not seen, else the fastest that was.

    Args:
        seen: candidate → seconds of its steps; None: it could not be tried.

    Returns:
        None if none could be tried.
    """
    unseen = [layout for layout in candidates if layout not in seen]
    return unseen[0] if unseen else fastest_candidate(candidates, seen)


def fastest_candidate(candidates: Sequence[Layout], seen: Mapping[Layout, float | None]) -> Layout | None:
    """Of those that were tried the one whose steps took least; of equals the one that was predicted to."""
    tried = [(step_s, candidates.index(layout), layout) for layout, step_s in seen.items() if step_s is not None]
    return min(tried)[2] if tried else None


def is_worth_trying(steps_left: int | None) -> bool:
    """Whether enough is left of a job for another trial; None: nobody knows."""
    return steps_left is None or steps_left >= _WORTH * TRIAL_STEPS
