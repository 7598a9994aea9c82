"""The loss of a language model, from logits that may be split over ranks by vocabulary."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F  # noqa: N812

from regroup.workers.parallel.mesh import Meshes
from regroup.workers.state.data import IGNORED


@contextmanager
def loss_scope(meshes: Meshes) -> Generator[None]:
    """Around forward and backward of a loss: with tensor parallelism no rank ever holds all logits."""
    if meshes.tensor is None:
        yield
        return
    with loss_parallel():
        yield


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum of the cross entropies of (batch, sequence) labels, in at least float32; what is `IGNORED` does not count."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


def value_of(loss: Tensor) -> Tensor:
    """A loss as a plain number on its device, outside of autograd."""
    return (loss.to_local() if isinstance(loss, DTensor) else loss).detach()
