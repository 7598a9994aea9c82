"""Forward and backward where every rank has all layers, or shards of all of them."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from regroup.workers.contract.messages import Phase
from regroup.workers.data.sampler import MicroBatch
from regroup.workers.parallel.loss import label_loss, loss_scope, value_of
from regroup.workers.parallel.mesh import Meshes
from regroup.workers.parallel.parallelize import gradients
from regroup.workers.parallel.precision import autocast


class NonPipelined:
    """Runs micro-batches one after the other. Gradients are summed over ranks in the last one."""

    def __init__(
        self,
        model: nn.Module,
        meshes: Meshes,
        device: torch.device,
        precision: str,
        *,
        scale: Callable[[], float],
        phase: Callable[[str], None],
    ) -> None:
        """Args:
        model: the distributed model.
        meshes: meshes of the layout.
        device: device of this rank.
        precision: precision of forward and backward.
        scale: returns the factor of the loss in the backward pass.
        phase: called with the next phase.
        """
        self._model, self._meshes, self._device, self._scale, self._phase = model, meshes, device, scale, phase
        self._autocast = partial(autocast, precision, meshes, device.type)

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Compute the gradients of a step. Return the sum of the labels' losses."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for number, batch in enumerate(batches):
            with gradients(self._model, summed=number == len(batches) - 1), loss_scope(self._meshes):
                self._phase(Phase.FORWARD)
                loss = self._loss(batch)
                self._phase(Phase.BACKWARD)
                (loss * self._scale()).backward()
            total += value_of(loss)
        return total

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Return the sum of the labels' losses, without gradients."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for batch in batches:
            self._phase(Phase.VALIDATION)
            with loss_scope(self._meshes):
                total += value_of(self._loss(batch))
        return total

    def _loss(self, batch: MicroBatch) -> Tensor:
        with self._autocast():
            logits = self._model(batch.inputs.to(self._device))
        return label_loss(logits, batch.labels.to(self._device))


def reshard(model: nn.Module) -> None:
    """Free gathered parameters. A forward without backward leaves those of the root gathered, and the next step would
    use old values."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
