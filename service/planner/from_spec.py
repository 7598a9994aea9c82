"""A job spec as the planner sees it: what a step computes, and the plan that a layout of it is."""

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
"""32-bit parameters, gradients and momentum."""
_WIDE = 2.0
"""Everything is twice as wide in fp64."""


def work_of(spec: JobSpec) -> Work:
    """What a step of the job computes at the size it asks for.

    Raises:
        SpecError: the planner cannot describe it; the issue says why.
    """
    workload, training = spec.workload, spec.training
    if not isinstance(workload, BuiltinWorkload) or training is None:
        raise _unknown("workload.kind", f"what a {workload.kind} computes is its own: nobody can plan it")
    if not isinstance(workload.model, TransformerModel):
        raise _unknown("workload.model.family", "the planner knows transformers, and has no model of a convnet's time")
    if isinstance(training.activation_checkpointing, float):
        raise _unknown(
            "training.activation_checkpointing", "what the compiler keeps within a share is not known before"
        )
    if spec.layout.offload:
        raise _unknown("layout.offload", "the planner has no model of shards in host memory")
    model = _model(workload.model, workload.model_sizes)
    samples = training.samples_at(spec.layout.dp.target, spec.layout.dp.target)
    return Work(model, samples, training.sequence or 1, training.precision)


def plan_of(spec: JobSpec, layout: Layout) -> Plan:
    """The plan that a job of this spec runs in a generation of this layout. `work_of` says whether there is one."""
    training = spec.training
    assert training is not None, "described jobs have one"
    split = spec.with_model_parallel(layout.tp, layout.pp).layout
    asked = training.activation_checkpointing
    is_named = asked in ("none", "selective", "full")
    return Plan(
        layout,
        layout.micro_batch or training.micro_batch,
        spec.layout.data_parallel,
        asked if is_named else "full",  # pyright: ignore[reportArgumentType]: one of the three by then
        spec.layout.schedule,
        split.stages // split.pp,
        sequence_parallel=spec.layout.sequence_parallel,
        recomputed=None if is_named else _recomputed(asked, _layers(spec)),
    )


def kept_of(training: Training) -> StateBytes:
    """Bytes that the built-in trainer keeps of a parameter, its gradient and the optimizer's state."""
    kept = TORCH_ADAM if training.optimizer.name == "adamw" else _TORCH_SGD
    if training.precision != "fp64":
        return kept
    return StateBytes(_WIDE * kept.parameter, _WIDE * kept.gradient, _WIDE * kept.optimizer)


def _model(asked: TransformerModel, sizes: Sizes) -> Model:
    if sizes.vocab_size is None:
        say = "the tokenizer says it, which only nodes can read: set model.vocab_size"
        raise _unknown("workload.model.vocab_size", say)
    return Model(
        asked.layers,
        asked.dim,
        asked.heads,
        sizes.vocab_size,
        sizes.ffn_dim or 0,
        sizes.kv_heads or 0,
        gated=True,
        tied=asked.tie_embeddings,
    )


def _layers(spec: JobSpec) -> int:
    return spec.workload.model.layers if isinstance(spec.workload, BuiltinWorkload) else 1


def _recomputed(asked: str | int | float, layers: int) -> float:
    """Of `sqrt` and of a number k: all blocks but every k-th."""
    every = round(math.sqrt(layers)) if asked == "sqrt" else int(asked)
    return 1 - 1 / max(1, every)


def _unknown(path: str, why: str) -> SpecError:
    return SpecError([FieldIssue(path, why)])
