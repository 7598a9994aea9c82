"""Memory model: device memory of each pipeline stage, and host memory of a node."""

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
"""Bytes per parameter in a snapshot: 32-bit master copy, first and second moment."""


@dataclass(frozen=True)
class StageMemory:
    """Peak bytes on each device of one pipeline stage."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    """Blocks that are being gathered or reduced."""
    slack: float
    """Context, libraries and fragmentation."""

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(vars(self).values())


def stage_memory(work: Work, plan: Plan, constants: Constants, states: StateBytes = MIXED_ADAM) -> list[StageMemory]:
    """Return the memory of a device of each stage, in the order of stages."""
    return [_stage(work, plan, constants, states, stage) for stage in range(plan.layout.pp)]


def peak_bytes(work: Work, plan: Plan, constants: Constants, states: StateBytes = MIXED_ADAM) -> float:
    """Return the bytes of the fullest stage. It is the first or the last; the stages between have less of each part."""
    ends = {0, plan.layout.pp - 1}
    return max(_stage(work, plan, constants, states, stage).total for stage in ends)


def _stage(work: Work, plan: Plan, c: Constants, states: StateBytes, stage: int) -> StageMemory:
    model, layout = work.model, plan.layout
    tp, pp = layout.tp, layout.pp
    first, last = stage == 0, stage == pp - 1
    layers = math.ceil(model.layers / pp)
    ends = model.embedding_parameters * (int(first) + int(last and (pp > 1 or not model.tied)))
    parameters = (layers * model.layer_parameters + ends) / tp
    shards = plan.shards
    # A pipeline keeps gathered parameters and the complete sum of gradients until the last micro-batch of a step.
    sharded = plan.sharding if pp == 1 else "zero1" if plan.sharding in ("fsdp", "zero2") else plan.sharding
    parameter, gradient, optimizer = (
        parameters * states.parameter / (shards if sharded == "fsdp" else 1),
        parameters * states.gradient / (shards if sharded in ("fsdp", "zero2") else 1),
        parameters * states.optimizer / (shards if plan.sharding != "ddp" else 1),
    )
    tokens = plan.micro_batch * work.sequence / layout.cp
    count = plan.micro_batches(work)

    wide = work.element_bytes / 2

    def layer_bytes(checkpointing: Checkpointing) -> float:
        return wide * layer_activation_bytes(
            tokens, model.hidden, model.heads, work.sequence, tp,
            sequence_parallel=plan.sequence_parallel, flash=work.flash, checkpointing=checkpointing,
        )  # fmt: skip

    stored_batches = in_flight(pp, stage, count, plan.schedule, plan.virtual)
    whole = layer_bytes("none")
    if plan.recomputed is None:
        stored_layer = layer_bytes(plan.checkpointing)
    else:
        stored_layer = plan.recomputed * layer_bytes("full") + (1 - plan.recomputed) * whole
    activations = stored_batches * layers * stored_layer + (whole - stored_layer)
    sums = max(4, work.element_bytes)  # losses and gradients are summed in at least 32 bits
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


def host_sets(*, mirror: bool) -> int:
    """Return the number of sets of snapshots in a node's memory: two of its ranks, and two of another node's."""
    return 4 if mirror else 2


def host_bytes(work: Work, plan: Plan, ranks_per_node: int, *, mirror: bool) -> float:
    """Return the bytes of host memory of one node for snapshots.

    A node stores two sets of its ranks' master parameters and moments and, with `mirror`, two sets of another node's.
    It stores a shard that several of its ranks share only once. Rank numbers run through tensor parallelism first, then
    data parallelism, then the pipeline.
    """
    layout = plan.layout
    ranks = min(ranks_per_node, layout.world_size)
    parts = layout.tp * (layout.dp_shard if plan.sharding in ("fsdp", "zero2") else 1)
    distinct = min(ranks, parts * layout.pp)
    one = work.model.parameters / (parts * layout.pp)
    return host_sets(mirror=mirror) * _SNAPSHOT_BYTES * one * distinct
