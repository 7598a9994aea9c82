"""The scale of a float16 loss (Micikevicius et al. 2018), equal on every rank of any layout."""

from typing import Any

INITIAL = 2.0**16
_GROWTH, _BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000
"""Steps without overflow after which the scale doubles, as in torch.amp.GradScaler."""
_SMALLEST = 2.0**-14


class LossScale:
    """Keeps small gradients within the range of float16.

    The norm of the global gradient shows an overflow. One all-reduce gives it to all ranks, including those of other
    pipeline stages. So all ranks skip the same updates.
    """

    def __init__(self, *, on: bool) -> None:
        self.is_on = on
        """If false, the scale is always 1."""
        self.value = INITIAL if on else 1.0
        """Factor of the loss."""
        self._good_steps = 0

    @property
    def can_fall(self) -> bool:
        """True if a smaller scale may fix a non-finite step: skip the update, then call `judge`."""
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
        """Return the scale and the number of steps since the last overflow."""
        return {"value": self.value, "good_steps": self._good_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the scale and the number of steps."""
        self.value, self._good_steps = state["value"], state["good_steps"]
