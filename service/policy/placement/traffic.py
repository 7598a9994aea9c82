"""Compute the bytes that ranks send per step, by axis of the layout. Placement minimizes their cost.

Counted as rings, from each rank to the next. An all-reduce of V bytes over d ranks is 2 V (d-1)/d; an all-gather or a
reduce-scatter is half of that (Patarasuk and Yuan 2009). Tensor parallelism has two all-reduces per layer in forward
and two in backward (Shoeybi et al. 2019, section 3), and as many bytes with sequence parallelism (Korthikanti et al.
2022).
"""

from dataclasses import dataclass, replace

from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.communication_cost import Axis
from regroup.service.spec.job import JobSpec
from regroup.service.spec.models import TransformerModel
from regroup.service.spec.training import Training
from regroup.service.spec.workload import BuiltinWorkload


@dataclass(frozen=True)
class TrainingWork:
    """The parts of a job's computation that determine its communication."""

    parameters: float = 1e9
    layers: int = 24
    hidden: int = 2048
    kv_width: int = 2048
    """Width of keys, and of values."""
    tokens: float = 2048
    """Number of tokens of a micro-batch, as one data rank sees it."""
    micro_batches: float = 1
    """Number of micro-batches per step and data rank."""
    activation_bytes: int = 2
    gradient_bytes: int = 4
    gathers: float = 2
    """Number of all-gathers of sharded parameters per micro-batch."""
    recomputes: bool = False
    """True if backward repeats the forward."""


UNKNOWN_WORK = TrainingWork()
"""Assumption for programs and functions: a model of a billion parameters."""


def axes_of_spec(spec: JobSpec, layout: Layout) -> tuple[Axis, ...]:
    """Return the axes of a job at this layout, the innermost first."""
    return axes(layout, work_of(spec, layout))


def axes(layout: Layout, work: TrainingWork) -> tuple[Axis, ...]:
    """Return the axes of a layout, the innermost first, with the bytes sent along each per step."""
    tp, cp, shard, replicate, pp = layout.tp, layout.cp, layout.dp_shard, layout.dp_replicate, layout.pp
    passes = work.micro_batches * work.layers / pp
    activations = work.tokens / cp * work.hidden * work.activation_bytes
    held = work.parameters / (tp * pp)
    in_layer = 6 if work.recomputes else 4
    gathers = work.gathers * work.micro_batches * work.activation_bytes
    keys_and_values = 2 * work.tokens / cp * work.kv_width * work.activation_bytes / tp
    return (
        Axis("tp", tp, in_layer * passes * 2 * _part(tp) * activations, in_layer * passes),
        # K and V circulate in forward, and again in backward together with their gradients.
        Axis("cp", cp, 3 * passes * (cp - 1) * keys_and_values, 3 * passes * (cp - 1)),
        Axis("dp_shard", shard, _part(shard) * held * (gathers + work.gradient_bytes), (work.gathers + 1) * passes),
        Axis("dp_replicate", replicate, 2 * _part(replicate) * held / shard * work.gradient_bytes, work.layers / pp),
        Axis("pp", pp, work.micro_batches * activations, work.micro_batches, is_chain=True),
    )


def has_work_figures(spec: JobSpec) -> bool:
    """Return True if the spec determines the communication; False for programs and functions."""
    return spec.training is not None and isinstance(spec.workload, BuiltinWorkload)


def work_of(spec: JobSpec, layout: Layout) -> TrainingWork:
    """Return the work of a data rank per step; `UNKNOWN_WORK` if the program controls it."""
    training = spec.training
    if training is None or not isinstance(spec.workload, BuiltinWorkload):
        return UNKNOWN_WORK
    data_rank_samples = training.samples_at(layout.data_degree, spec.layout.dp.target) / layout.data_degree
    micro_batch = layout.micro_batch or training.micro_batch
    precise = {"fp64": 8, "fp32": 4}.get(training.precision, 2)
    sharded = spec.layout.data_parallel in ("fsdp", "zero2")
    work = replace(
        UNKNOWN_WORK,
        tokens=micro_batch * (training.sequence or 1),
        micro_batches=max(1.0, data_rank_samples / micro_batch),
        activation_bytes=precise,
        gradient_bytes=8 if precise == 8 else 2 if training.reduce == "bf16" else 4,
        gathers=(2 if spec.layout.reshard_after_forward else 1) if sharded else 1,
        recomputes=training.activation_checkpointing == "full",
    )
    return _of_model(spec.workload, training, work)


def _of_model(workload: BuiltinWorkload, training: Training, work: TrainingWork) -> TrainingWork:
    model = workload.model
    if isinstance(model, TransformerModel):
        kv_width = model.dim * (model.kv_heads or model.heads) // model.heads
        ffn_dim = model.ffn_dim or -(-model.dim * 8 // 3 // 32) * 32
        embeddings = (model.vocab_size or 256) * model.dim * (1 if model.tie_embeddings else 2)
        block = 2 * model.dim * (model.dim + kv_width) + 3 * model.dim * ffn_dim
        parameters = model.layers * block + embeddings
        return replace(work, parameters=parameters, layers=model.layers, hidden=model.dim, kv_width=kv_width)
    block = 2 * model.dim * (model.ffn_dim or 4 * model.dim)
    return replace(work, parameters=model.layers * block, layers=model.layers, hidden=model.dim)


def _part(degree: int) -> float:
    """Return the fraction of a payload that a rank of a ring sends in one round."""
    return (degree - 1) / degree
