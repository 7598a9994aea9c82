"""AdamW and SGD, written from their formulas. They return new values and change none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

Values = Mapping[str, Tensor]


class Optimizer(Protocol):
    """An optimizer with its state."""

    def updated(self, parameters: Values, gradients: Values, rate: float) -> dict[str, Tensor]:
        """Return the parameters after one update."""
        ...


@dataclass
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019). Only matrices decay."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    _steps: int = 0
    _means: dict[str, Tensor] = field(default_factory=dict)
    _squares: dict[str, Tensor] = field(default_factory=dict)

    def updated(self, parameters: Values, gradients: Values, rate: float) -> dict[str, Tensor]:
        """Return the parameters after one update."""
        self._steps += 1
        first, second = self.betas
        changed: dict[str, Tensor] = {}
        for name, value in parameters.items():
            gradient, zero = gradients[name], torch.zeros_like(value)
            self._means[name] = first * self._means.get(name, zero) + (1 - first) * gradient
            self._squares[name] = second * self._squares.get(name, zero) + (1 - second) * gradient**2
            mean = self._means[name] / (1 - first**self._steps)
            root = torch.sqrt(self._squares[name] / (1 - second**self._steps))
            decay = self.weight_decay if value.dim() > 1 else 0.0
            changed[name] = value - rate * decay * value - rate * mean / (root + self.eps)
        return changed


@dataclass
class SGD:
    """SGD with momentum (Sutskever et al. 2013) and weight decay in the gradient. Only matrices decay."""

    momentum: float
    weight_decay: float
    _velocities: dict[str, Tensor] = field(default_factory=dict)

    def updated(self, parameters: Values, gradients: Values, rate: float) -> dict[str, Tensor]:
        """Return the parameters after one update."""
        changed: dict[str, Tensor] = {}
        for name, value in parameters.items():
            decay = self.weight_decay if value.dim() > 1 else 0.0
            velocity = self.momentum * self._velocities.get(name, torch.zeros_like(value))
            self._velocities[name] = velocity + gradients[name] + decay * value
            changed[name] = value - rate * self._velocities[name]
        return changed
