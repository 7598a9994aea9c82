"""Pipeline parallelism: stages of a model on ranks behind each other, driven by torch's schedules.

References: Huang et al. 2019 (GPipe); Narayanan et al. 2021 (1F1B, interleaving); Qi et al. 2024 (zero bubble, ZBV).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle, get_schedule_class

from regroup.workers.contract.messages import Phase
from regroup.workers.data.sampler import MicroBatch
from regroup.workers.models import Model
from regroup.workers.parallel.device_timer import DeviceTimer
from regroup.workers.parallel.loss import label_loss, loss_scope, value_of
from regroup.workers.parallel.mesh import Meshes
from regroup.workers.parallel.pipeline_stages import rank_of_last, stage_count, stages_of

_CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
}
"""Our names of schedules → torch's."""


class Pipeline:
    """Forward and backward of this rank's stages. All ranks of a pipeline see the same micro-batches."""

    def __init__(
        self,
        stages: Sequence[nn.Module],
        meshes: Meshes,
        device: torch.device,
        schedule: str,
        *,
        micro_batches: int,
        inputs: Tensor,
        stream: torch.dtype,
        scale: Callable[[], float],
        phase: Callable[[str], None],
    ) -> None:
        """
        Args:
            stages: modules of this rank, in order.
            micro_batches: of one step and rank.
            inputs: of a micro-batch, on the meta device.
            stream: type of the residual stream.
            scale: says what losses are multiplied with for the backward.
        """
        assert meshes.pipeline is not None
        self._meshes, self._device = meshes, device
        self._scale, self._phase, self._losses = scale, phase, list[Tensor]()
        ranks, rank = meshes.pipeline.size(), meshes.pipeline.get_local_rank()
        self._is_first = rank == 0
        self._has_last = rank == rank_of_last(schedule, ranks)
        shape = cast(Model, stages[0]).stream_shape(inputs.shape)
        self._between = between = torch.empty(shape, dtype=stream, device="meta", requires_grad=True)
        total = stage_count(schedule, ranks)
        self._group, self._own = meshes.pipeline.get_group(), dist.get_rank()
        self._owners = {
            index: dist.get_global_rank(self._group, owner)
            for owner in range(ranks)
            for index in stages_of(schedule, ranks, owner)
        }
        """Stage → rank of the world."""
        made = [
            _Stage(phase, module, index, total, device, inputs if index == 0 else between, between, self._group)
            for index, module in zip(stages_of(schedule, ranks, rank), stages, strict=True)
        ]
        kind = get_schedule_class(_CLASSES[schedule])
        options: dict[str, Any] = {"n_microbatches": micro_batches, "loss_fn": self._loss, "scale_grads": False}
        self._schedule: PipelineScheduleSingle | PipelineScheduleMulti
        if issubclass(kind, PipelineScheduleSingle):
            self._schedule = kind(made[0], **options)
        else:
            self._schedule = cast("type[PipelineScheduleMulti]", kind)(cast(Any, made), **options)
        self._stages = made

    def busy_s(self) -> dict[int, float]:
        """Seconds that each stage of this rank computed in the last `train`."""
        return {stage.stage_index: stage.busy_s() for stage in self._stages}

    @property
    def peak_live(self) -> int:
        """The most micro-batches whose activations one stage of this rank held at once so far."""
        return max(stage.peak_live for stage in self._stages)

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Gradients of a step; the sum of the labels' losses, 0 where the last stage is not."""
        self._losses = []
        for stage in self._stages:
            stage.begin()
        inputs = [torch.cat([batch.inputs for batch in batches]).to(self._device)] if self._is_first else []
        labels = torch.cat([batch.labels for batch in batches]).to(self._device) if self._has_last else None
        with loss_scope(self._meshes):
            losses: list[Tensor] | None = [] if self._has_last else None
            self._schedule.step(*inputs, target=labels, losses=losses, return_outputs=False)
        return self._total()

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> Tensor:
        """As `train`, without gradients, of any number of micro-batches, alike on all ranks.

        Not by torch's schedules: those of V shape cannot.
        """
        self._losses = []
        sent: list[tuple[dist.Work | None, Tensor]] = []  # a tensor must live until it has gone
        for batch in batches:
            for stage in self._stages:
                self._phase(Phase.VALIDATION)
                sent += self._forward(stage, batch)
        for work, _ in sent:
            if work is not None:
                work.wait()
        return self._total()

    def _forward(self, stage: "_Stage", batch: MicroBatch) -> list[tuple[dist.Work | None, Tensor]]:
        before, after = (self._owners.get(stage.stage_index + step) for step in (-1, 1))
        if before is None:
            x = batch.inputs.to(self._device)
        elif before == self._own:
            x = self._handed
        else:
            x = torch.empty_like(self._between, device=self._device)
            dist.recv(x, before, group=self._group)
        with loss_scope(self._meshes):
            y = stage.submod(x)
            if after is None:
                self._losses.append(value_of(label_loss(y, batch.labels.to(self._device))).double())
                return []
        if after == self._own:
            self._handed = y
            return []
        return [(dist.isend(y.contiguous(), after, group=self._group), y)]

    def _total(self) -> Tensor:
        return torch.stack([torch.zeros((), dtype=torch.float64, device=self._device), *self._losses]).sum()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = label_loss(logits, labels)
        self._losses.append(value_of(loss).double())
        return loss * self._scale()


class _Stage(PipelineStage):
    """Says what it does, for hang detection and rehearsed failures, and counts what it holds."""

    def __init__(
        self,
        phase: Callable[[str], None],
        module: nn.Module,
        index: int,
        count: int,
        device: torch.device,
        takes: Tensor,
        gives: Tensor,
        group: Any,
    ) -> None:
        # Shapes are known: to find them out would cost every generation a forward and messages between stages.
        super().__init__(module, index, count, device, input_args=takes, output_args=gives, group=group)
        self._phase, self._stopwatch = phase, DeviceTimer(device)
        self._live = self.peak_live = 0

    def begin(self) -> None:
        """A new step."""
        self._stopwatch.reset()

    def busy_s(self) -> float:
        """Seconds of computing since `begin`."""
        return self._stopwatch.total_s()

    def forward_one_chunk(self, *args: Any, **options: Any) -> Any:
        self._phase(Phase.FORWARD)
        self._live += 1
        self.peak_live = max(self.peak_live, self._live)
        with self._stopwatch, _as_raised():
            return super().forward_one_chunk(*args, **options)

    def backward_one_chunk(self, *args: Any, **options: Any) -> None:
        self._phase(Phase.BACKWARD)
        with self._stopwatch, _as_raised():
            super().backward_one_chunk(*args, **options)
        self._live -= 1

    def backward_weight_one_chunk(self, *args: Any, **options: Any) -> None:
        with self._stopwatch, _as_raised():
            super().backward_weight_one_chunk(*args, **options)


@contextmanager
def _as_raised() -> Generator[None]:
    """torch wraps what a stage raises: a lost connection would be taken for an error of the model's."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
