"""Number of steps between snapshots for the spec's `auto`: as few as its share of the time allows.

The inputs are sums over all ranks, so all ranks choose the same interval and snapshot the same steps.
"""

import math
from collections import deque
from statistics import median

SHARE = 0.02
"""Largest share of the time that snapshots may cost: stalls of training, and slower steps during a copy."""
_SYNC_COST_FACTOR = 2.0
"""Cost of a synchronous copy relative to a rank's own stall.

The other ranks wait for the slowest one, and the next forward pass finds cold caches. Measured with four ranks on two
cores: DDP was 7.4 % slower with stalls of 3.7 %, a pipeline of four stages about 2.5 % with stalls of 1.4 %.
"""
_HYSTERESIS = 0.75
"""Fraction of `SHARE` below which the interval shrinks again, so that noise does not change it."""
_MAX_STEPS = 100
_WINDOW = 9
"""Number of recent measurements in use."""
_MIN_MEASUREMENTS = 5
_WARMUP_STEPS = 2
"""First steps of a generation that are not measured: they allocate what later steps reuse."""


class SnapshotInterval:
    """Number of steps between snapshots: 1 until there are enough measurements."""

    def __init__(self, every_steps: int | None, *, is_async: bool) -> None:
        """Args:
        every_steps: fixed interval; None: choose it from measurements.
        is_async: True if training continues during a copy.
        """
        self.is_automatic = every_steps is None
        self.every_steps = every_steps or 1
        self._is_async = is_async
        self._steps = 0
        self._stalls = deque[float](maxlen=_WINDOW)
        self._plain, self._overlapped = deque[float](maxlen=_WINDOW), deque[float](maxlen=_WINDOW)

    def is_due(self, step: int, newest: int) -> bool:
        """Return True if `step` needs a snapshot.

        Args:
            step: number of the step.
            newest: step of the last snapshot, or of the restored state.
        """
        return step - newest >= self.every_steps if self.is_automatic else step % self.every_steps == 0

    def learn(self, step_s: float, stall_s: float, previous_stall_s: float) -> bool:
        """Add measurements of a step, summed over all ranks.

        Args:
            step_s: duration of the step, in seconds.
            stall_s: stall of training by the step's own snapshot; 0: there was none.
            previous_stall_s: stall within `step_s` by the snapshot of the previous step; 0: there was none.

        Returns:
            True if the interval has changed.
        """
        self._steps += 1
        if not self.is_automatic or self._steps <= _WARMUP_STEPS:
            return False
        (self._overlapped if previous_stall_s else self._plain).append(max(step_s - previous_stall_s, 0.0))
        if stall_s:
            self._stalls.append(stall_s)
        if len(self._stalls) < _MIN_MEASUREMENTS:
            return False
        previous, self.every_steps = self.every_steps, self._estimate()
        return self.every_steps != previous

    def _estimate(self) -> int:
        step_s = median(self._plain or self._overlapped)
        cost_s = median(self._stalls) * (1.0 if self._is_async else _SYNC_COST_FACTOR)
        if self._is_async and len(self._plain) >= _MIN_MEASUREMENTS and len(self._overlapped) >= _MIN_MEASUREMENTS:
            cost_s += max(median(self._overlapped) - step_s, 0.0)
        needed, relaxed = _steps_for(cost_s, step_s, SHARE), _steps_for(cost_s, step_s, _HYSTERESIS * SHARE)
        return needed if needed > self.every_steps else min(relaxed, self.every_steps)


def _steps_for(cost_s: float, step_s: float, share: float) -> int:
    """Return the smallest interval that keeps a snapshot within `share`: cost ≤ share · (steps · step + cost)."""
    if step_s <= 0:
        return _MAX_STEPS
    return min(max(math.ceil(cost_s * (1 - share) / (share * step_s)), 1), _MAX_STEPS)
