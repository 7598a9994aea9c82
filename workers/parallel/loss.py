"""The loss, from logits that may be sharded along tokens or classes."""

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
    """Wrap forward and backward of a loss: with tensor parallelism no rank ever holds all logits."""
    if meshes.tensor is None:
        yield
        return
    with loss_parallel():
        yield


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of the labels' cross entropies, in at least float32. Labels equal to `IGNORED` do not count.

    Args:
        logits: (batch, classes) or (batch, sequence, vocabulary).
        labels: (batch) or (batch, sequence).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def value_of(loss: Tensor) -> Tensor:
    """Return a loss as a plain scalar tensor on its device, detached from autograd."""
    return (loss.to_local() if isinstance(loss, DTensor) else loss).detach()
