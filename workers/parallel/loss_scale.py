"""The scale of a float16 loss (Micikevicius et al. 2018), decided alike on every rank of any layout."""

from typing import Any

INITIAL = 2.0**16
_GROWTH, _BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000
"""Steps without overflow after which the scale is tried twice as large, as torch.amp.GradScaler has it."""
_SMALLEST = 2.0**-14


class LossScale:
    """Keeps gradients of small numbers above what float16 can hold.

    Whether a step overflowed is read off the norm of the whole gradient, which one all-reduce gives to all ranks, those
    of other pipeline stages too: no rank can update where another one skips.
    """

    def __init__(self, *, on: bool) -> None:
        self.is_on = on
        """Otherwise it is 1 for ever."""
        self.value = INITIAL if on else 1.0
        """What losses are multiplied with."""
        self._good_steps = 0

    @property
    def can_fall(self) -> bool:
        """A step that is not finite may be float16's fault: skip it, and judge."""
        return self.is_on and self.value >= _SMALLEST

    def judge(self, *, finite: bool) -> None:
        """Set the scale for the next step."""
        if not self.is_on:
            return
        if not finite:
            self.value, self._good_steps = self.value * _BACKOFF, 0
            return
        self._good_steps += 1
        if self._good_steps % GROWTH_INTERVAL == 0:
            self.value *= _GROWTH

    def state_dict(self) -> dict[str, Any]:
        """Scale and steps since the last overflow."""
        return {"value": self.value, "good_steps": self._good_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        self.value, self._good_steps = state["value"], state["good_steps"]
