"""Detection of steps whose loss or gradient norm is a spike. All ranks decide alike, from the same sums."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from regroup.workers.contract.error_classes import LossSpikeError
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig

LOSS, NORM = "loss", "gradient norm"
_WINDOW = 64
"""Number of recent steps that a value is compared with."""
_LEAST = 20
"""Number of steps before the first decision."""
_NEWEST = 9
"""Number of newest steps that define the usual loss."""
_SPREADS = 8.0
"""Distance from the usual loss, in standard deviations, that makes a spike. Noise exceeds it once in 10**15 values."""
_SHARE = 0.25
"""Distance from the usual loss, as a fraction of it, that a spike must also exceed."""
_OF_A_NORMAL = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
_HIGH = 0.9
"""Quantile of the recent norms that the next norm is compared with. More frequent large norms are usual, not spikes."""
_TIMES = 10.0
"""Factor above that quantile that makes a spike. Norms scatter; one wrong exponent exceeds this by far."""


def limit_of_losses(losses: Sequence[float]) -> float | None:
    """Return the largest loss that is not a spike; None while there are too few losses.

    Uses the median and the median absolute deviation, which a few outliers do not move (F. R. Hampel, "The influence
    curve and its role in robust estimation", 1974). The median is that of the newest losses. The deviation is that of
    the changes from step to step, which do not grow when the loss falls.

    Args:
        losses: of the previous steps, oldest first.
    """
    if len(losses) < _LEAST:
        return None
    usual = median(losses[-_NEWEST:])
    changes = [after - before for before, after in pairwise(losses)]
    usual_change = median(changes)
    spread = _OF_A_NORMAL * median(abs(change - usual_change) for change in changes)
    return usual + max(_SPREADS * spread, _SHARE * abs(usual))


def limit_of_norms(norms: Sequence[float]) -> float | None:
    """Return the largest gradient norm that is not a spike; None while there are too few norms.

    Args:
        norms: of the previous steps, oldest first.
    """
    return _TIMES * sorted(norms)[int(_HIGH * (len(norms) - 1))] if len(norms) >= _LEAST else None


class LossSpikes:
    """Detector for the spec's `recovery.loss_spike`.

    Keeps losses and gradient norms of this generation's newest steps.
    """

    def __init__(self, config: LossSpikeConfig) -> None:
        self._action = config.action
        self._repeated = {spike.step: spike for spike in config.repeated}
        self._series = {LOSS: _Series(limit_of_losses), NORM: _Series(limit_of_norms)}

    def check(self, step: int, loss: float | None, norm: float | None) -> Sequence[dict[str, Any]]:
        """Compare a step's loss and gradient norm with those of the previous steps, before its update.

        A lasting spike is reported once. A step that is repeated because of a spike uses its previous limit, and is
        never rolled back again: a spike that recurs comes from the data or the learning rate.

        Args:
            step: number of the step.
            loss: mean loss; None if unknown.
            norm: gradient norm; None if unknown.

        Returns:
            Data of the events to emit.

        Raises:
            LossSpikeError: the job must roll back to the state before this step.
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
            message = f"step {step}: {metric} {value:.4g} is a spike: at most {limit:.4g} was expected"
            if self._action is LossSpikeAction.ROLLBACK and repeated is None:
                raise LossSpikeError(f"{message}; repeating the step from the state before it", facts)
            again = ". It recurred from the same state, so the data or the learning rate causes it"
            notes.append({**facts, "message": f"{message}{again if limit_then is not None else ''}"})
        return notes


class _Series:
    """Values of the newest steps."""

    def __init__(self, limit_of: Callable[[Sequence[float]], float | None]) -> None:
        self.is_high = False
        """True if the last value was a spike."""
        self._limit_of, self._values = limit_of, deque[float](maxlen=_WINDOW)

    def exceeded_by(self, value: float, limit: float | None) -> float | None:
        """Add a value. Return the limit that it exceeds, or None if it is not a spike.

        Args:
            value: loss or norm of the next step.
            limit: limit to use; computed from the previous values if None.
        """
        if limit is None:
            limit = self._limit_of(list(self._values))
        self._values.append(value)
        self.is_high = limit is not None and value > limit
        return limit if self.is_high else None
