"""The loss, from logits that may be split over ranks by what they are of: tokens, or classes."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F  # noqa: N812

from regroup.workers.data.sampler import IGNORED
from regroup.workers.parallel.mesh import Meshes


@contextmanager
def loss_scope(meshes: Meshes) -> Generator[None]:
    """Around forward and backward of a loss: with tensor parallelism no rank ever holds all logits."""
    if meshes.tensor is None:
        yield
        return
    with loss_parallel():
        yield


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum of the labels' cross entropies, in at least float32; what is `IGNORED` does not count.

    Args:
        logits: one dimension more than the labels.
        labels: (batch) or (batch, sequence).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def value_of(loss: Tensor) -> Tensor:
    """A loss as a plain number on its device, outside of autograd."""
    return (loss.to_local() if isinstance(loss, DTensor) else loss).detach()
