"""Try the planner's candidate layouts for a few steps each: choose the next one, and the one to keep. Pure."""

from collections.abc import Mapping, Sequence

from regroup.service.domain.layout import Layout

TRIAL_STEPS = 8
"""Number of steps that measure a candidate, without the first two of its generation."""
MAX_CANDIDATES = 3
TRIAL_TIMEOUT_S = 120.0
"""Time after which a candidate that has not started is skipped."""
_WORTH = 3
"""Number of trials that the remaining steps must allow for a trial to start."""


def next_candidate(candidates: Sequence[Layout], seen: Mapping[Layout, float | None]) -> Layout | None:
    """Return the candidate to run next: the next untried one, else the fastest.

    Args:
        seen: candidate → its step time in seconds; None if it could not be tried.

    Returns:
        None if no candidate could be tried.
    """
    unseen = [layout for layout in candidates if layout not in seen]
    return unseen[0] if unseen else fastest_candidate(candidates, seen)


def fastest_candidate(candidates: Sequence[Layout], seen: Mapping[Layout, float | None]) -> Layout | None:
    """Return the candidate with the shortest measured step time; of equal ones the one with the best prediction."""
    tried = [(step_s, candidates.index(layout), layout) for layout, step_s in seen.items() if step_s is not None]
    return min(tried)[2] if tried else None


def is_worth_trying(steps_left: int | None) -> bool:
    """Return True if enough steps remain for another trial, or their number is unknown (None)."""
    return steps_left is None or steps_left >= _WORTH * TRIAL_STEPS
