"""Pipeline parallelism: consecutive stages of a model on different ranks, driven by torch's schedules.

References: Huang et al. 2019 (GPipe); Narayanan et al. 2021 (1F1B, interleaving); Qi et al. 2024 (zero bubble, ZBV).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle, get_schedule_class

from regroup.workers.contract.messages import Phase
from regroup.workers.data.sampler import MicroBatch
from regroup.workers.models import Model
from regroup.workers.parallel.device_timer import DeviceTimer
from regroup.workers.parallel.loss import label_loss, loss_scope, value_of
from regroup.workers.parallel.mesh import Meshes
from regroup.workers.parallel.pipeline_stages import rank_of_last, stage_count, stages_of
from regroup.workers.torch_internals.pipelining import Stage

_CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
}
"""Schedule names of regroup → names of torch."""


class Pipeline:
    """Forward and backward of this rank's stages. All ranks of a pipeline receive the same micro-batches."""

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
        """Args:
        stages: modules of this rank, in order.
        meshes: meshes of the layout, with a pipeline mesh.
        device: device of this rank.
        schedule: name of the schedule.
        micro_batches: number of micro-batches of one step on one rank.
        inputs: inputs of a micro-batch, on the meta device.
        stream: data type of the residual stream.
        scale: returns the factor of the loss in the backward pass.
        phase: called with the next phase.
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
        """Stage → global rank."""
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
        """Return the seconds that each stage of this rank computed in the last `train`."""
        return {stage.stage_index: stage.busy_s() for stage in self._stages}

    @property
    def peak_live(self) -> int:
        """Largest number of micro-batches whose activations one stage of this rank held at once."""
        return max(stage.peak_live for stage in self._stages)

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Compute the gradients of a step.

        Returns:
            Sum of the labels' losses; 0 on ranks without the last stage.
        """
        self._losses = []
        for stage in self._stages:
            stage.begin()
        inputs = [torch.cat([batch.inputs for batch in batches]).to(self._device)] if self._is_first else []
        labels = torch.cat([batch.labels for batch in batches]).to(self._device) if self._has_last else None
        with loss_scope(self._meshes):
            self._schedule.step(*inputs, target=labels, return_outputs=False)
        return self._total()

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Compute the loss like `train`, without gradients, for any number of micro-batches, equal on all ranks.

        Does not use torch's schedules: the V-shaped ones cannot evaluate.
        """
        self._losses = []
        sent: list[tuple[dist.Work | None, Tensor]] = []  # a tensor must live until it is sent
        for batch in batches:
            for stage in self._stages:
                self._phase(Phase.VALIDATION)
                sent += self._forward(stage, batch)
        for work, _ in sent:
            if work is not None:
                work.wait()
        return self._total()

    def _forward(self, stage: "_Stage", batch: MicroBatch) -> list[tuple[dist.Work | None, Tensor]]:
        previous, following = (self._owners.get(stage.stage_index + step) for step in (-1, 1))
        if previous is None:
            x = batch.inputs.to(self._device)
        elif previous == self._own:
            x = self._stream
        else:
            x = torch.empty_like(self._between, device=self._device)
            dist.recv(x, previous, group=self._group)
        with loss_scope(self._meshes):
            y = stage.submod(x)
            if following is None:
                self._losses.append(value_of(label_loss(y, batch.labels.to(self._device))).double())
                return []
        if following == self._own:
            self._stream = y
            return []
        return [(dist.isend(y.contiguous(), following, group=self._group), y)]

    def _total(self) -> Tensor:
        return torch.stack([torch.zeros((), dtype=torch.float64, device=self._device), *self._losses]).sum()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = label_loss(logits, labels)
        self._losses.append(value_of(loss).double())
        return loss * self._scale()


class _Stage(Stage):
    """A stage that publishes its phase, for hang detection and planned faults, and counts the activations it holds."""

    def __init__(
        self,
        phase: Callable[[str], None],
        module: nn.Module,
        index: int,
        count: int,
        device: torch.device,
        inputs: Tensor,
        outputs: Tensor,
        group: Any,
    ) -> None:
        # Pass the known shapes: inferring them costs each generation a forward pass and messages between stages.
        super().__init__(module, index, count, device, input_args=inputs, output_args=outputs, group=group)
        self._phase, self._stopwatch = phase, DeviceTimer(device)
        self._live = self.peak_live = 0

    def begin(self) -> None:
        """Start a new step."""
        self._stopwatch.reset()

    def busy_s(self) -> float:
        """Return the seconds of computation since `begin`."""
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
    """Unwrap exceptions that torch wraps: otherwise a lost connection would look like an error of the model."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
