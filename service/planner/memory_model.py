"""How much memory each stage takes, of the device and of the host."""

import math
from dataclasses import dataclass

from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import (
    MIXED_ADAM,
    Checkpointing,
    StateBytes,
    in_flight,
    layer_activation_bytes,
)
from regroup.service.planner.types import Plan, Work

_GIGA = 1e9
_SNAPSHOT_BYTES = 12
"""Per parameter: 32-bit master, first and second moment."""


@dataclass(frozen=True)
class StageMemory:
    """Bytes on each device of one pipeline stage, at the worst moment of a step."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    """Blocks gathered or reduced at the moment."""
    slack: float
    """Context, libraries, fragments."""

    @property
    def total(self) -> float:
        """All of them."""
        return sum(vars(self).values())


def stage_memory(work: Work, plan: Plan, constants: Constants, kept: StateBytes = MIXED_ADAM) -> list[StageMemory]:
    """What a device of each stage needs, the first stage first."""
    return [_stage(work, plan, constants, kept, stage) for stage in range(plan.layout.pp)]


def peak_bytes(work: Work, plan: Plan, constants: Constants, kept: StateBytes = MIXED_ADAM) -> float:
    """What the fullest stage needs: the first or the last, since those between hold less of everything."""
    ends = {0, plan.layout.pp - 1}
    return max(_stage(work, plan, constants, kept, stage).total for stage in ends)


def _stage(work: Work, plan: Plan, c: Constants, kept: StateBytes, stage: int) -> StageMemory:
    model, layout = work.model, plan.layout
    tp, pp = layout.tp, layout.pp
    first, last = stage == 0, stage == pp - 1
    layers = math.ceil(model.layers / pp)
    ends = model.embedding_parameters * (int(first) + int(last and (pp > 1 or not model.tied)))
    held = (layers * model.layer_parameters + ends) / tp
    shards = plan.shards
    # a pipeline keeps what it gathered, and the sum of its gradients whole, until the step's last micro-batch
    sharded = plan.sharding if pp == 1 else "zero1" if plan.sharding in ("fsdp", "zero2") else plan.sharding
    parameter, gradient, optimizer = (
        held * kept.parameter / (shards if sharded == "fsdp" else 1),
        held * kept.gradient / (shards if sharded in ("fsdp", "zero2") else 1),
        held * kept.optimizer / (shards if plan.sharding != "ddp" else 1),
    )
    tokens = plan.micro_batch * work.sequence / layout.cp
    count = plan.micro_batches(work)

    wide = work.element_bytes / 2

    def layer_bytes(checkpointing: Checkpointing) -> float:
        return wide * layer_activation_bytes(
            tokens, model.hidden, model.heads, work.sequence, tp,
            sequence_parallel=plan.sequence_parallel, flash=work.flash, checkpointing=checkpointing,
        )  # fmt: skip

    waiting = in_flight(pp, stage, count, plan.schedule, plan.virtual)
    whole = layer_bytes("none")
    if plan.recomputed is None:
        kept_layer = layer_bytes(plan.checkpointing)
    else:
        kept_layer = plan.recomputed * layer_bytes("full") + (1 - plan.recomputed) * whole
    activations = waiting * layers * kept_layer + (whole - kept_layer)
    sums = max(4, work.element_bytes)  # losses and gradients are summed in 32 bits at least
    logits = (sums + work.element_bytes) * tokens * model.vocabulary / tp if last else 0.0
    buffers = 0.0
    if plan.sharding in ("fsdp", "zero2") and plan.layout.dp_shard > 1:
        buffers = (2 * work.element_bytes + sums) * model.layer_parameters / tp
    used = parameter + gradient + optimizer + activations + logits + buffers
    return StageMemory(
        parameters=parameter,
        gradients=gradient,
        optimizer=optimizer,
        activations=activations,
        logits=logits,
        buffers=buffers,
        slack=c.reserved_gb * _GIGA + c.slack * used,
    )


def host_bytes(work: Work, plan: Plan, ranks_per_node: int, *, mirror: bool) -> float:
    """Host memory of one node for snapshots: two sets of master parameters and moments of its ranks, and two of
    another's.

    A shard that several ranks of a node hold alike is kept once. Ranks of a node are neighbours: tensor parallelism
    innermost, then data, the pipeline outermost.
    """
    layout = plan.layout
    ranks = min(ranks_per_node, layout.world_size)
    parts = layout.tp * (layout.dp_shard if plan.sharding in ("fsdp", "zero2") else 1)
    distinct = min(ranks, parts * layout.pp)
    one = work.model.parameters / (parts * layout.pp)
    return 2.0 * (2 if mirror else 1) * _SNAPSHOT_BYTES * one * distinct
