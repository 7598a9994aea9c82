"""A step whose loss or gradient norm stands out from those before it, and what a rank does then: the same on all, from
the same sums."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from regroup.workers.contract.error_classes import LossSpikeError
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig

LOSS, NORM = "loss", "gradient norm"
_WINDOW = 64
"""Steps that a value is held against."""
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
_HIGH = 0.9
"""So many of the norms are no larger than what the next one is held against: more wild ones than that are usual."""
_TIMES = 10.0
"""So much larger: norms scatter, and do so more on some batches than on others. One wrong exponent is far more."""


def limit_of_losses(losses: Sequence[float]) -> float | None:
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


def limit_of_norms(norms: Sequence[float]) -> float | None:
    """The largest gradient norm that is none of a spike, from those of the steps before; None while these are too
    few."""
    return _TIMES * sorted(norms)[int(_HIGH * (len(norms) - 1))] if len(norms) >= _LEAST else None


class LossSpikes:
    """The spec's `recovery.loss_spike`, and losses and gradient norms of this generation's newest steps."""

    def __init__(self, config: LossSpikeConfig) -> None:
        self._action = config.action
        self._repeated = {spike.step: spike for spike in config.repeated}
        self._series = {LOSS: _Series(limit_of_losses), NORM: _Series(limit_of_norms)}

    def check(self, step: int, loss: float | None, norm: float | None) -> Sequence[dict[str, Any]]:
        """Hold a step's loss and gradient norm, where it has them, against those before, before anything of the step is
        kept; returns what to tell of it.

        A spike is told once, however long it lasts. A step that is done again because of one is judged as it was
        before, and goes on as it comes out: what comes back is no accident.

        Raises:
            LossSpikeError: the job is to go back to the state before this step.
        """
        notes: list[dict[str, Any]] = []
        repeated = self._repeated.get(step)
        for metric, value in ((LOSS, loss), (NORM, norm)):
            if value is None or self._action is LossSpikeAction.OFF:
                continue
            series = self._series[metric]
            limit_then = repeated.limit if repeated is not None and repeated.metric == metric else None
            was_high, limit = series.is_high, series.exceeded_by(value, limit_then)
            if limit is None or was_high:
                continue
            facts = {"step": step, "of": metric, "value": value, "limit": limit}
            message = f"step {step}: {metric} {value:.4g} stands out: no more than {limit:.4g} was to be expected"
            if self._action is LossSpikeAction.ROLLBACK and repeated is None:
                raise LossSpikeError(f"{message}; the step is done again from the state before it", facts)
            again = ". It came out so again, from the same state: it is in the data or the learning rate"
            notes.append({**facts, "message": f"{message}{again if limit_then is not None else ''}"})
        return notes


class _Series:
    """Values of the newest steps."""

    def __init__(self, limit_of: Callable[[Sequence[float]], float | None]) -> None:
        self.is_high = False
        """The last one stood out."""
        self._limit_of, self._values = limit_of, deque[float](maxlen=_WINDOW)

    def exceeded_by(self, value: float, limit: float | None) -> float | None:
        """The limit above which the next value lies; None if it does not stand out. `limit`: what it was before."""
        if limit is None:
            limit = self._limit_of(list(self._values))
        self._values.append(value)
        self.is_high = limit is not None and value > limit
        return limit if self.is_high else None
