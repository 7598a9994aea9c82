"""What a rank does with a step whose loss or gradient norm is no number: the same on all ranks, from the same sums."""

import math
from typing import Any, NoReturn

from regroup.workers.contract.error_classes import NonFiniteError
from regroup.workers.contract.rank_config import NonFiniteAction, NonFiniteConfig


class NonFinite:
    """The spec's `recovery.non_finite`, and the updates that were skipped because of it in this generation."""

    def __init__(self, config: NonFiniteConfig, advice: str) -> None:
        """`advice`: what a person can do about such a step."""
        self._advice = advice
        self._config = config
        self._level, self._last = 0.0, 0

    def is_finite(self, *values: float) -> bool:
        """Whether all are numbers, or nobody is to look: in a rehearsal that may be overlooked."""
        return self.is_off or all(math.isfinite(value) for value in values)

    @property
    def is_off(self) -> bool:
        """Nobody is to look."""
        return self._config.action is NonFiniteAction.IGNORE

    def skip(self, step: int, message: str) -> dict[str, Any]:
        """Go on without this step's update; returns what to tell of it.

        A leaky bucket, like every budget: each skip adds one, each `refill_steps` take one away.

        Raises:
            NonFiniteError: it is not to be skipped, or as many were as may be.
        """
        if self._config.action is not NonFiniteAction.SKIP:
            self.fail(step, message)
        most, refill_steps = self._config.max_skips, self._config.refill_steps
        self._level = max(0.0, self._level - (step - self._last) / refill_steps) + 1
        self._last = step
        if self._level > most:
            self.fail(step, f"{message}; more than recovery.budgets.non_finite={most} such steps were skipped")
        return {"step": step, "message": f"step {step}: {message}: its update was skipped"}

    def fail(self, step: int, message: str) -> NoReturn:
        """End the generation: nothing of this step is kept.

        Raises:
            NonFiniteError: always.
        """
        raise NonFiniteError(f"step {step}: {message}; nothing of the step is kept. {self._advice}")
