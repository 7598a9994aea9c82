"""After how many steps the next snapshot is due where the spec says `auto`: as often as its share of the time allows.

What is learned are sums over all ranks, so it is the same on all of them, and they take their snapshots together.
"""

import math
from collections import deque
from statistics import median

SHARE = 0.02
"""Most of the time that snapshots may cost: what training waits for them, and what it is slower beside a copy."""
_SYNC_COST_FACTOR = 2.0
"""What a copy that is whole before training goes on costs, over what a rank waits for it: the others wait for the
slowest, and the next forward finds cold caches. Measured with four ranks on two cores: DDP was 7.4 % slower where ranks
waited 3.7 % of the time, four stages of a pipeline some 2.5 % with 1.4 %."""
_HYSTERESIS = 0.75
"""Back to more of them only where they would cost less than this part of it, so that noise changes nothing."""
_MAX_STEPS = 100
_WINDOW = 9
"""So many of the newest measurements count."""
_MIN_MEASUREMENTS = 5
_WARMUP_STEPS = 2
"""Of a generation: they build what the others keep."""


class SnapshotInterval:
    """Steps between snapshots: one until there is enough to judge by."""

    def __init__(self, every_steps: int | None, *, is_async: bool) -> None:
        """`every_steps`: as it stays; None: as it is learned. `is_async`: training goes on beside a copy."""
        self.is_automatic = every_steps is None
        self.every_steps = every_steps or 1
        self._is_async = is_async
        self._steps = 0
        self._stalls = deque[float](maxlen=_WINDOW)
        self._plain, self._overlapped = deque[float](maxlen=_WINDOW), deque[float](maxlen=_WINDOW)

    def is_due(self, step: int, newest: int) -> bool:
        """Whether `step` is kept; `newest` is the last step that was, or that was restored."""
        return step - newest >= self.every_steps if self.is_automatic else step % self.every_steps == 0

    def learn(self, step_s: float, stall_s: float, previous_stall_s: float) -> bool:
        """Of a step, all ranks together: how long it took, what its own snapshot then held training up and what the one
        of the step before did, which is part of `step_s`; 0: there was none.

        Returns:
            Whether the interval is another one now.
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
    """The fewest steps of which one snapshot is no more than `share`: cost ≤ share · (steps · step + cost)."""
    if step_s <= 0:
        return _MAX_STEPS
    return min(max(math.ceil(cost_s * (1 - share) / (share * step_s)), 1), _MAX_STEPS)
