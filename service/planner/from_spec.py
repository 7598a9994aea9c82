"""Conversion of a job spec to the planner's inputs: the work of a step, and the plan of a layout."""

import math

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.formulas import TORCH_ADAM, StateBytes
from regroup.service.planner.model_shape import Model
from regroup.service.planner.types import Plan, Work
from regroup.service.spec.job import JobSpec
from regroup.service.spec.layout_rules import ModelSizes as Sizes
from regroup.service.spec.models import TransformerModel
from regroup.service.spec.training import Training
from regroup.service.spec.workload import BuiltinWorkload

_TORCH_SGD = StateBytes(4, 4, 4)
"""SGD with 32-bit parameters, gradients and momentum."""
_FP64_FACTOR = 2.0
"""Bytes in fp64 relative to fp32."""


def work_of(spec: JobSpec) -> Work:
    """Return the work of one step of the job at its target size.

    Raises:
        SpecError: the planner cannot model the job. The issue states the reason.
    """
    workload, training = spec.workload, spec.training
    if not isinstance(workload, BuiltinWorkload) or training is None:
        message = (
            f"layout: auto is not available for {workload.kind} workloads (the planner cannot model user code); "
            "set layout explicitly"
        )
        raise _unsupported("workload.kind", message)
    if not isinstance(workload.model, TransformerModel):
        raise _unsupported("workload.model.family", "the planner supports transformers only; set layout explicitly")
    if isinstance(training.activation_checkpointing, float):
        raise _unsupported(
            "training.activation_checkpointing",
            "the planner cannot predict the memory of a fraction; use none, selective or full",
        )
    if spec.layout.offload:
        raise _unsupported("layout.offload", "the planner does not support offload; set layout explicitly")
    model = _model(workload.model, workload.model_sizes)
    samples = training.samples_at(spec.layout.dp.target, spec.layout.dp.target)
    return Work(model, samples, training.sequence or 1, training.precision)


def plan_of(spec: JobSpec, layout: Layout) -> Plan:
    """Return the plan of a generation with this layout. Call it only for jobs that `work_of` supports."""
    training = spec.training
    assert training is not None, "a job that the planner models has one"
    split = spec.with_model_parallel(layout.tp, layout.pp).layout
    mode = training.activation_checkpointing
    is_named = mode in ("none", "selective", "full")
    return Plan(
        layout,
        layout.micro_batch or training.micro_batch,
        spec.layout.data_parallel,
        mode if is_named else "full",  # pyright: ignore[reportArgumentType]: one of the three here
        spec.layout.schedule,
        split.stages // split.pp,
        sequence_parallel=spec.layout.sequence_parallel,
        recomputed=None if is_named else _recomputed(mode, _layers(spec)),
    )


def state_bytes_of(training: Training) -> StateBytes:
    """Return the bytes per parameter, gradient and optimizer state of the built-in trainer."""
    states = TORCH_ADAM if training.optimizer.name == "adamw" else _TORCH_SGD
    if training.precision != "fp64":
        return states
    return StateBytes(_FP64_FACTOR * states.parameter, _FP64_FACTOR * states.gradient, _FP64_FACTOR * states.optimizer)


def _model(transformer: TransformerModel, sizes: Sizes) -> Model:
    if sizes.vocab_size is None:
        raise _unsupported(
            "workload.model.vocab_size",
            "unknown at submit time: only nodes can read the tokenizer; set model.vocab_size",
        )
    return Model(
        transformer.layers,
        transformer.dim,
        transformer.heads,
        sizes.vocab_size,
        sizes.ffn_dim or 0,
        sizes.kv_heads or 0,
        gated=True,
        tied=transformer.tie_embeddings,
    )


def _layers(spec: JobSpec) -> int:
    return spec.workload.model.layers if isinstance(spec.workload, BuiltinWorkload) else 1


def _recomputed(mode: str | int | float, layers: int) -> float:
    """Return the share of recomputed blocks for a number k or `sqrt`: all blocks except every k-th."""
    every = round(math.sqrt(layers)) if mode == "sqrt" else int(mode)
    return 1 - 1 / max(1, every)


def _unsupported(path: str, why: str) -> SpecError:
    return SpecError([FieldIssue(path, why)])
