"""Global batch size and learning rate of a step."""

import math
from collections.abc import Mapping

from regroup.workers.contract.rank_config import TrainingConfig

FOLLOWS = "follows_world"
_RULES = {"fixed": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Exponent of the batch size in the learning rate: Krizhevsky 2014 (square root), Goyal et al. 2017 (linear)."""


def learning_rate(step: int, training: TrainingConfig) -> float:
    """Return the learning rate of step `step` (from 1): linear warm-up, then constant, or cosine decay to
    `min_lr_ratio`."""
    assert training.steps is not None, "the spec gives it"
    peak, schedule = training.optimizer.lr, training.schedule
    warmup = schedule.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    if schedule.name == "constant":
        return peak
    progress = (step - warmup) / max(1, training.steps - warmup)
    floor = schedule.min_lr_ratio
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


class BatchSize:
    """Samples of a step at one data-parallel degree, and their effect on the learning rate.

    With `follows_world`, each rank computes the same number of samples at any size. After a resize, the learning rate
    moves to its new value over `lr_ramp_steps`. `Context.track` keeps the progress of this ramp.
    """

    def __init__(self, training: TrainingConfig, degree: int) -> None:
        """Args:
        training: the spec's `training`; `dp_target` is the degree at which a step has `global_batch` samples.
        degree: data-parallel degree of this generation.
        """
        assert training.global_batch is not None, "the spec gives it"
        self.samples = training.global_batch
        self._target = 1.0
        if training.batch == FOLLOWS:
            ratio = degree / training.dp_target
            self.samples = round(self.samples * ratio)
            self._target = ratio ** _RULES[training.lr_rule]
        self._ramp_steps = training.lr_ramp_steps
        self._from, self._since = self._target, 0
        self._loaded: Mapping[str, float] | None = None

    def factor(self, step: int) -> float:
        """Return the factor by which the learning rate of a step is multiplied."""
        passed = step - self._since
        if passed >= self._ramp_steps:
            return self._target
        return self._from + (self._target - self._from) * passed / self._ramp_steps

    def state_dict(self) -> dict[str, float]:
        """Return the factors at the start and the end of the ramp, and the step at which it starts."""
        return {"from": self._from, "goal": self._target, "since": self._since}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Load a state. It takes effect in `resumed_after`."""
        self._loaded = state

    def resumed_after(self, step: int) -> None:
        """Apply the loaded state, which belongs to `step`.

        If its target differs from this size's target, start a ramp from the current factor.
        """
        if self._loaded is None:
            return
        target, own = float(self._loaded["goal"]), self._target
        self._from, self._since, self._target = float(self._loaded["from"]), int(self._loaded["since"]), target
        if own != target:
            self._from, self._since, self._target = self.factor(step), step, own
