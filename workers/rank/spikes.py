"""A step whose loss stands out from those before it, and what a rank does then: the same on all, from the same sums."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from regroup.workers.rank.errors import LossSpikeError

_WINDOW = 64
"""Steps that a loss is held against."""
_LEAST = 20
"""Fewer tell nothing yet."""
_NEWEST = 9
"""Of them tell what is usual now."""
_SPREADS = 8.0
"""So far above the usual: of even noise hardly a value in 10**15 is."""
_SHARE = 0.25
"""And by this part of it, however even the losses are."""
_OF_A_NORMAL = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
_OFF: Mapping[str, Any] = {"do": "off"}


def limit_of(losses: Sequence[float]) -> float | None:
    """The largest loss that is none of a spike, from those of the steps before; None while these are too few.

    Median and median absolute deviation, which a few wild values do not move (F. R. Hampel, "The influence curve and
    its role in robust estimation", 1974): the median of the newest, and the deviation of the changes from step to step,
    which do not grow because the loss falls.
    """
    if len(losses) < _LEAST:
        return None
    usual = median(losses[-_NEWEST:])
    changes = [after - before for before, after in pairwise(losses)]
    usual_change = median(changes)
    spread = _OF_A_NORMAL * median(abs(change - usual_change) for change in changes)
    return usual + max(_SPREADS * spread, _SHARE * abs(usual))


class LossSpikes:
    """The spec's `recovery.loss_spike`, and the losses of this generation's newest steps."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        rule = config.get("loss_spike", _OFF)
        self._do: str = rule["do"]
        self._known = {int(step): float(limit) for step, limit in rule.get("known", ())}
        self._losses = deque[float](maxlen=_WINDOW)
        self._is_high = False

    def look(self, step: int, loss: float) -> dict[str, Any] | None:
        """Hold a step's loss against those before, before anything of the step is kept; returns what to tell of it.

        A spike is told once, however long it lasts. A step that is done again because of one is judged as it was
        before, and goes on as it comes out: what comes back is no accident.

        Raises:
            LossSpikeError: the job is to go back to the state before this step.
        """
        if self._do == "off":
            return None
        limit = self._known.get(step, limit_of(list(self._losses)))
        self._losses.append(loss)
        if limit is None or loss <= limit:
            self._is_high = False
            return None
        facts = {"step": step, "loss": loss, "limit": limit}
        told = f"step {step}: loss {loss:.4g} stands out: no more than {limit:.4g} was to be expected"
        if self._do == "rollback" and step not in self._known and not self._is_high:
            raise LossSpikeError(f"{told}; the step is done again from the state before it", facts)
        if self._is_high:
            return None
        self._is_high = True
        again = ". It came out so again, from the same state: it is in the data or the learning rate"
        return {**facts, "message": f"{told}{again if step in self._known else ''}"}
