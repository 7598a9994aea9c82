"""How many samples a step has, and its learning rate."""

import math
from collections.abc import Mapping

from regroup.workers.contract.rank_config import TrainingConfig

FOLLOWS = "follows_world"
_RULES = {"fixed": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Exponent of the batch's size in the learning rate: Krizhevsky 2014 (square root), Goyal et al. 2017 (linear)."""


def learning_rate(step: int, training: TrainingConfig) -> float:
    """Rate of step `step` (from 1): linear warm-up, then constant or cosine decay to `min_lr_ratio` at the last."""
    assert training.steps is not None, "the spec gives it"
    peak, schedule = training.optimizer.lr, training.schedule
    warmup = schedule.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    if schedule.name == "constant":
        return peak
    way = (step - warmup) / max(1, training.steps - warmup)
    floor = schedule.min_lr_ratio
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * way)) / 2)


class BatchSize:
    """Samples of a step at one data-parallel degree, and what they do to the learning rate.

    Where the batch follows the world size, a rank computes as many samples at any size, and the rate of another size
    than the wanted one is gone to slowly. `Context.track` keeps how far that is.
    """

    def __init__(self, training: TrainingConfig, degree: int) -> None:
        """
        Args:
            training: of the spec; with `dp_target`, the degree at which a step has `global_batch` samples.
            degree: data ranks of this generation.
        """
        assert training.global_batch is not None, "the spec gives it"
        self.samples = training.global_batch
        self._goal = 1.0
        if training.batch == FOLLOWS:
            ratio = degree / training.dp_target
            self.samples = round(self.samples * ratio)
            self._goal = ratio ** _RULES[training.lr_rule]
        self._ramp_steps = training.lr_ramp_steps
        self._from, self._since = self._goal, 0
        self._loaded: Mapping[str, float] | None = None

    def factor(self, step: int) -> float:
        """What the learning rate of a step is multiplied with."""
        passed = step - self._since
        if passed >= self._ramp_steps:
            return self._goal
        return self._from + (self._goal - self._from) * passed / self._ramp_steps

    def state_dict(self) -> dict[str, float]:
        """From what factor to which, since which step."""
        return {"from": self._from, "goal": self._goal, "since": self._since}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on where the state stands; `resumed_after` says when that is."""
        self._loaded = state

    def resumed_after(self, step: int) -> None:
        """If a state was loaded, it is of this step; if its goal was another one, begin to leave it."""
        if self._loaded is None:
            return
        goal, own = float(self._loaded["goal"]), self._goal
        self._from, self._since, self._goal = float(self._loaded["from"]), int(self._loaded["since"]), goal
        if own != goal:
            self._from, self._since, self._goal = self.factor(step), step, own
