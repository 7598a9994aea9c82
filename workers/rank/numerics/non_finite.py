"""Handling of steps whose loss or gradient norm is not finite. All ranks decide alike, from the same sums."""

import math
from typing import Any, NoReturn

from regroup.workers.contract.error_classes import NonFiniteError
from regroup.workers.contract.rank_config import NonFiniteAction, NonFiniteConfig


class NonFinite:
    """Detector for the spec's `recovery.non_finite`. Counts the updates that this generation skipped."""

    def __init__(self, config: NonFiniteConfig, advice: str) -> None:
        """`advice`: remedy to append to the error."""
        self._advice = advice
        self._config = config
        self._level, self._last = 0.0, 0

    def is_finite(self, *values: float) -> bool:
        """Return True if all values are finite, or if the detector is off."""
        return self.is_off or all(math.isfinite(value) for value in values)

    @property
    def is_off(self) -> bool:
        """True if the job has switched the detector off."""
        return self._config.action is NonFiniteAction.IGNORE

    def skip(self, step: int, message: str) -> dict[str, Any]:
        """Skip this step's update. Return the data of the event to emit.

        Uses a leaky bucket, like every budget: each skip adds one, and each `refill_steps` steps remove one.

        Raises:
            NonFiniteError: the spec forbids skipping, or the budget of skips is used up.
        """
        if self._config.action is not NonFiniteAction.SKIP:
            self.fail(step, message)
        most, refill_steps = self._config.max_skips, self._config.refill_steps
        self._level = max(0.0, self._level - (step - self._last) / refill_steps) + 1
        self._last = step
        if self._level > most:
            self.fail(step, f"{message}; more than recovery.budgets.non_finite={most} such steps were skipped")
        return {"step": step, "message": f"step {step}: {message}; update skipped"}

    def fail(self, step: int, message: str) -> NoReturn:
        """End the generation. No state of this step is kept.

        Raises:
            NonFiniteError: always.
        """
        raise NonFiniteError(f"step {step}: {message}; the step was discarded. {self._advice}")
