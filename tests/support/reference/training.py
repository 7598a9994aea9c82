"""Steps of a training: accumulation over micro-batches, loss scale, clipping and update, written from the formulas."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.support.reference.optimizers import Optimizer, Values

IGNORED = -100
"""Label that does not count."""
CLIP_EPS = 1e-6
"""Added to the norm by which torch.nn.utils.clip_grad_norm_ divides."""

MicroBatch = tuple[Tensor, Tensor]
"""Inputs and labels."""


@dataclass
class LossScale:
    """The scale of a float16 loss (Micikevicius et al. 2018): half after an overflow, double after many good steps."""

    value: float
    growth_interval: int
    good_steps: int = 0

    def after(self, *, overflow: bool) -> None:
        """Set the scale of the next step."""
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.value /= 2
        elif self.good_steps % self.growth_interval == 0:
            self.value *= 2


@dataclass(frozen=True)
class Step:
    """Results of a step. Loss and gradients are means over the labels that count."""

    loss: float
    norm: float
    """Norm of the gradients before clipping."""
    gradients: dict[str, Tensor]
    """Gradients before clipping."""
    parameters: dict[str, Tensor]
    """Values after the update."""
    labels: int
    """Number of labels that count."""
    is_skipped: bool
    """True if the gradients overflowed, so that the parameters stayed."""


class Training:
    """A model and its optimizer."""

    def __init__(
        self,
        model: Callable[[Values, Tensor], Tensor],
        parameters: Values,
        optimizer: Optimizer,
        *,
        clip_norm: float | None = None,
        scale: LossScale | None = None,
    ) -> None:
        """Args:
        model: returns the logits of inputs.
        parameters: values before the first step; not changed.
        optimizer: an optimizer without state.
        clip_norm: largest norm of the gradients.
        scale: scale of the loss in half precision.
        """
        self._model, self._optimizer, self._clip_norm, self._scale = model, optimizer, clip_norm, scale
        self.parameters = {name: value.detach().to(torch.float64) for name, value in parameters.items()}

    def step(self, batches: Sequence[MicroBatch], rate: float) -> Step:
        """Add up the gradients of all micro-batches, and update the parameters once."""
        valid = sum(int((labels != IGNORED).sum()) for _, labels in batches)
        scale = self._scale.value if self._scale else 1.0
        loss, gradients = self._sums(batches, scale)
        gradients = {name: gradient / (scale * valid) for name, gradient in gradients.items()}
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        overflow = self._scale is not None and not math.isfinite(norm)
        if not overflow:
            shrink = 1.0 if self._clip_norm is None else min(1.0, self._clip_norm / (norm + CLIP_EPS))
            clipped = {name: gradient * shrink for name, gradient in gradients.items()}
            self.parameters = self._optimizer.updated(self.parameters, clipped, rate)
        if self._scale is not None:
            self._scale.after(overflow=overflow)
        return Step(loss / valid, norm, gradients, self.parameters, valid, overflow)

    def _sums(self, batches: Sequence[MicroBatch], scale: float) -> tuple[float, dict[str, Tensor]]:
        """Return the sum of the labels' losses, and the gradient of that sum multiplied by `scale`.

        The backward pass starts from the mean over all labels, ignored ones included: in half precision the size of
        its values matters.
        """
        positions = sum(labels.numel() for _, labels in batches)
        names = list(self.parameters)
        total, sums = 0.0, {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        for inputs, labels in batches:
            leaves = {name: value.clone().requires_grad_() for name, value in self.parameters.items()}
            loss = cross_entropy(self._model(leaves, inputs), labels)
            found = torch.autograd.grad(loss * (scale / positions), [leaves[name] for name in names])
            total += loss.item()
            for name, gradient in zip(names, found, strict=True):
                sums[name] = sums[name] + gradient * positions
        return total, sums


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum over labels that count of log Σ exp(logits) − logit of the label."""
    counts = labels != IGNORED
    rows, chosen = logits[counts], labels[counts]
    largest = rows.amax(-1, keepdim=True).detach()
    partition = largest.squeeze(-1) + torch.log(torch.exp(rows - largest).sum(-1))
    return (partition - rows[torch.arange(len(chosen)), chosen]).sum()


def cosine_rate(step: int, *, peak: float, warmup: int, steps: int, floor: float) -> float:
    """Return the learning rate of a step (from 1): a linear rise, then half a cosine down to `floor` times the peak."""
    if step <= warmup:
        return peak * step / warmup
    share = (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
    return peak * (floor + (1 - floor) * share)
