"""Convolutional classifier of images: depthwise convolutions and inverted bottlenecks with batch normalisation.

References: Sandler et al. 2018 (inverted bottlenecks); Ioffe and Szegedy 2015 (batch normalisation); Chollet 2017
(depthwise separable convolutions).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name everybody reads)

from regroup.workers.models.batch_norm import BatchNorm
from regroup.workers.models.roles import Role, Tiny

_KERNEL = 3
_TENSOR_PLAN = {
    "stem": Role.STREAM,
    "layers.*.mix": Role.STREAM,
    "layers.*.norm": Role.STREAM,
    "layers.*.widen": Role.SPLIT,
    "layers.*.widen.up": Role.COLUMN,
    "layers.*.widen.norm": Role.CHANNELS,
    "layers.*.widen.down": Role.ROW,
    "head": Role.HEAD,
}


def build(config: Mapping[str, Any], symbols: int) -> "Convnet":
    """Return a classifier with the fields of `models.ConvnetModel`, for at least `symbols` classes.

    Raises:
        ValueError: the data has labels of more classes.
    """
    classes, dim = int(config["classes"]), int(config["dim"])
    if classes < symbols:
        raise ValueError(f"model.classes is {classes} but the data has labels up to {symbols - 1}; raise it")
    return Convnet(
        channels=int(config["channels"]),
        classes=classes,
        dim=dim,
        layers=int(config["layers"]),
        hidden=int(config.get("ffn_dim") or 4 * dim),
        norm={
            "eps": float(config["norm_eps"]),
            "momentum": float(config["norm_momentum"]),
            "is_shared": config["norm_over"] == "global_batch",
        },
    )


def tiny() -> Tiny:
    """Return the tiny example for the zygote's warm-up."""
    config = {"channels": 1, "classes": 4, "dim": 8, "layers": 1, "ffn_dim": 16}
    return Tiny(config, torch.zeros((2, 1, 4, 4)), torch.zeros(2, dtype=torch.int64), symbols=4)


class Convnet(nn.Module):
    """Images (batch, channels, height, width) → logits (batch, classes)."""

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        dim: int,
        layers: int,
        hidden: int,
        norm: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._dim = dim
        self.depth, self.outputs, self.stream_parts = layers, classes, 1
        self.tensor_plan = _TENSOR_PLAN
        self.stem: nn.Module | None = nn.Conv2d(channels, dim, _KERNEL, padding=_KERNEL // 2)
        self.layers = nn.ModuleDict({str(i): Block(dim, hidden, norm) for i in range(layers)})
        self.head: nn.Module | None = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classes. A stage takes and gives the residual stream, (batch, height, width, dim), instead."""
        if self.stem is not None:
            # The stem's weights may be kept in another type than the data.
            x = self.stem(x.to(next(self.stem.parameters()).dtype)).permute(0, 2, 3, 1).contiguous()
        for block in self.layers.values():
            x = block(x)
        return x if self.head is None else self.head(x.mean((1, 2)))

    def stream_shape(self, inputs: torch.Size) -> tuple[int, ...]:
        """(batch, height, width, dim)."""
        return (inputs[0], inputs[2], inputs[3], self._dim)

    def cut(self, blocks: range) -> None:
        """Become a pipeline stage: only these blocks stay, with the stem if the first is among them, and the head if
        the last is."""
        if 0 not in blocks:
            self.stem = None
        if self.depth - 1 not in blocks:
            self.head = None
        for index in set(range(self.depth)) - set(blocks):
            del self.layers[str(index)]

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Normalisation begins as the identity; weights are normal, of variance 2 / inputs (He et al. 2015), those that
        write to the residual stream scaled by its depth."""
        if name.endswith(("norm.weight", "running_var")):
            return torch.ones(shape)
        if len(shape) == 1:
            return torch.zeros(shape)
        std = math.sqrt(2 / shape[1:].numel())
        if name.endswith("widen.down.weight"):
            std /= math.sqrt(2 * self.depth)
        return torch.empty(shape).normal_(0.0, std, generator=generator)


class Block(nn.Module):
    """Mixes neighbours channel by channel, then channels place by place, and adds to the residual stream."""

    def __init__(self, dim: int, hidden: int, norm: Mapping[str, Any]) -> None:
        super().__init__()
        self.mix = nn.Conv2d(dim, dim, _KERNEL, padding=_KERNEL // 2, groups=dim, bias=False)
        self.norm = BatchNorm(dim, **norm)
        self.widen = Bottleneck(dim, hidden, norm)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, height, width, dim)."""
        y = self.mix(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return x + self.widen(F.relu(self.norm(y)))


class Bottleneck(nn.Module):
    """Through more channels than the residual stream has."""

    def __init__(self, dim: int, hidden: int, norm: Mapping[str, Any]) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        self.norm = BatchNorm(hidden, **norm)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (…, dim)."""
        return self.down(F.relu(self.norm(self.up(x))))
