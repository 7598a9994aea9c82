"""A model on a layout: build, distribute and initialize it; run forward and backward; compute norms and update."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from regroup.workers.contract.rank_config import OptimizerConfig
from regroup.workers.data.sampler import MicroBatch
from regroup.workers.models import Model, build_model
from regroup.workers.models.batch_norm import batch_norms, forget, settle
from regroup.workers.parallel.block_costs import block_costs, step_flops
from regroup.workers.parallel.device_timer import DeviceTimer
from regroup.workers.parallel.grad_norm import clip_factor, copies_of, scale, squared_norm
from regroup.workers.parallel.loss_scale import LossScale
from regroup.workers.parallel.mesh import Meshes, alike_in, meshes_of
from regroup.workers.parallel.non_pipelined import NonPipelined, reshard
from regroup.workers.parallel.parallelize import initialise, parallelize
from regroup.workers.parallel.parameter_names import Stages
from regroup.workers.parallel.pipeline_parallel import Pipeline
from regroup.workers.parallel.pipeline_stages import bubble, cut, idle_share, rank_of_last, stage_count, stages_of
from regroup.workers.parallel.precision import stream_dtype
from regroup.workers.parallel.sharded_optimizers import make_optimizer
from regroup.workers.parallel.strategy import Strategy
from regroup.workers.parallel.zero1 import RowPartition


class _Passes(Protocol):
    def train(self, batches: Sequence[MicroBatch]) -> Tensor: ...

    def evaluate(self, batches: Sequence[MicroBatch]) -> Tensor: ...


class Engine:
    """This rank's part of a model, and its operations in a step.

    The loss is the sum over labels, multiplied by one number that is equal on all ranks and for all micro-batches.
    Gradients are summed over ranks and micro-batches and never averaged. So they are those of the whole batch on any
    layout.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        symbols: int,
        layout: Mapping[str, int],
        device: torch.device,
        strategy: Strategy,
        optimizer: OptimizerConfig,
        *,
        micro_batches: int,
        example: Tensor,
        loss_scale: float,
        phase: Callable[[str], None],
    ) -> None:
        """Args:
        model: configuration of the model.
        symbols: number of token ids or classes in the data.
        layout: parallel degrees by axis.
        device: device of this rank.
        strategy: options of parallelism.
        optimizer: the optimizer and its constants.
        micro_batches: number of micro-batches of one step on one rank.
        example: inputs of a micro-batch, on the meta device.
        loss_scale: factor of the loss in the backward pass, in any precision.
        phase: called with the next phase.
        """
        self._meshes = meshes = meshes_of(layout, device.type, sharded=strategy.is_sharded)
        self.scale = LossScale(on=strategy.precision == "fp16")
        self._build, self._example = partial(_build, model, symbols, layout), example
        self.passes: _Passes

        def scaled() -> float:
            return loss_scale * self.scale.value

        if meshes.pipeline is None:
            self.model = parallelize(self._build(), meshes, device, strategy)
            self.passes = NonPipelined(self.model, meshes, device, strategy.precision, scale=scaled, phase=phase)
        else:
            self.model = _stages(self._build, example, meshes, device, strategy)
            self.passes = Pipeline(
                list(self.model),
                meshes,
                device,
                strategy.schedule,
                micro_batches=micro_batches,
                inputs=example,
                stream=stream_dtype(strategy.precision),
                scale=scaled,
                phase=phase,
            )
        rows = RowPartition(meshes.data) if strategy.data_parallel == "zero1" else None
        self.optimizer = make_optimizer(self.model, optimizer, rows)
        self._clip_norm = optimizer.clip_norm
        self._schedule, self._micro_batches = strategy.schedule, micro_batches
        self._stages = stage_count(strategy.schedule, layout.get("pp", 1))
        self._stopwatch = DeviceTimer(device)
        self._trained = list(self.model.parameters())
        alike = alike_in(layout, dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else None
        self._copies = copies_of(self._trained, alike)
        self._counts_loss = _counts_loss(meshes, strategy.schedule)
        self._norms = batch_norms(self.model)
        for norm in self._norms:
            norm.group = meshes.data_group

    def flops(self, samples: int) -> int:
        """Return the FLOPs of forward and backward for this number of samples, without recomputation."""
        return step_flops(self._build, self._example) * samples // len(self._example)

    def initialise(self, seed: int) -> None:
        """Draw the first values of the parameters."""
        for module in self.model if isinstance(self.model, Stages) else [self.model]:
            initialise(module, seed)

    def gradients(self, batches: Sequence[MicroBatch]) -> float:
        """Run forward and backward.

        Returns:
            Sum of the labels' losses; 0 on ranks whose loss another rank counts.
        """
        self.optimizer.zero_grad()
        forget(self._norms)
        self._stopwatch.reset()
        with self._stopwatch:
            loss = self.passes.train(batches)
        return self._counted(loss)

    def times(self) -> dict[str, float]:
        """Return the seconds of the last `gradients` on this rank, to be summed over all ranks and passed to `facts`.
        Empty without a pipeline."""
        if not isinstance(self.passes, Pipeline):
            return {}
        busy = self.passes.busy_s()
        return {"pass": self._stopwatch.total_s(), **{f"stage {i}": busy.get(i, 0.0) for i in range(self._stages)}}

    def facts(self, times: Mapping[str, float], world_size: int) -> dict[str, float]:
        """Return metrics of a pipeline from the sums of `times`: `pipeline_idle`; `bubble`, its theoretical value; and
        `slowest_stage`, its time divided by the mean."""
        if not isinstance(self.passes, Pipeline) or self._meshes.pipeline is None:
            return {}
        ranks = self._meshes.pipeline.size()
        busy_s = [times[f"stage {i}"] / (world_size // ranks) for i in range(self._stages)]
        theory = bubble(self._schedule, ranks, self._micro_batches)
        return {
            "pipeline_idle": idle_share(busy_s, ranks, times["pass"] / world_size),
            **({} if theory is None else {"bubble": theory}),
            "slowest_stage": max(busy_s) * len(busy_s) / max(sum(busy_s), 1e-9),
        }

    def evaluate(self, batches: Sequence[MicroBatch]) -> float:
        """Return the sum of the labels' losses without gradients, or 0 on ranks whose loss another rank counts."""
        self.model.eval()
        loss = self._counted(self.passes.evaluate(batches))
        self.model.train()
        reshard(self.model)
        return loss

    def squared_norm(self) -> float:
        """Return this rank's contribution to the squared norm of the gradient."""
        pairs = [(each.grad, count) for each, count in zip(self._trained, self._copies, strict=True)]
        used = [(gradient, count) for gradient, count in pairs if gradient is not None]
        return squared_norm([gradient for gradient, _ in used], [count for _, count in used]) / self.scale.value**2

    def update(self, rate: float, norm: float, correction: float) -> None:
        """Scale and clip the gradients, and update the parameters. Call this before `scale.judge`.

        Args:
            rate: learning rate.
            norm: gradient norm after scaling by `correction`.
            correction: factor of the gradients.
        """
        scale(self._gradients, correction * clip_factor(norm, self._clip_norm) / self.scale.value)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        settle(self._norms)

    def _counted(self, loss: Tensor) -> float:
        return float(loss) if self._counts_loss else 0.0

    @property
    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._trained if parameter.grad is not None]


def _build(config: Mapping[str, Any], symbols: int, layout: Mapping[str, int]) -> nn.Module:
    model = build_model(config, symbols)
    rows = cast(Model, model).outputs
    # The spec checks this only for the tokenizer that needs no file.
    if rows % (tp := layout.get("tp", 1)):
        raise ValueError(f"a vocabulary of {rows} is not divisible by tp={tp}; set model.vocab_size to a multiple")
    return model


def _stages(
    build: Callable[[], nn.Module], example: Tensor, meshes: Meshes, device: torch.device, strategy: Strategy
) -> Stages:
    assert meshes.pipeline is not None
    ranks, rank = meshes.pipeline.size(), meshes.pipeline.get_local_rank()
    cuts = cut(block_costs(build, example), stage_count(strategy.schedule, ranks))
    made: list[nn.Module] = []
    for index in stages_of(strategy.schedule, ranks, rank):
        module = build()
        cast(Model, module).cut(cuts[index])
        made.append(parallelize(module, meshes, device, strategy))
    return Stages(made)


def _counts_loss(meshes: Meshes, schedule: str) -> bool:
    if meshes.tensor is not None and meshes.tensor.get_local_rank() > 0:
        return False
    pipeline = meshes.pipeline
    return pipeline is None or pipeline.get_local_rank() == rank_of_last(schedule, pipeline.size())
