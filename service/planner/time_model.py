"""Time model of a step: the sum of computation, waiting and communication, each by a formula with fitted constants."""

import math
from dataclasses import dataclass, replace

from regroup.service.domain.hardware import NVLS_GAIN
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import bubble_overhead, layer_activation_bytes, ring_half_s
from regroup.service.planner.types import Cluster, Plan, StepCost, Work

_OPTIMIZER_BYTES = 30.0
"""Memory traffic per parameter of an Adam step: gradient, master and two moments read, all but the gradient written."""
_ACCUMULATED_BYTES = 10.0
"""Memory traffic per parameter of adding a micro-batch's 16-bit gradient to the 32-bit sum."""
_NARROW = ("fp8", "fp4")
_NODE = 8
"""Number of devices up to which a rank never waits for a straggler of another node."""
_RECOMPUTED = {"none": 0.0, "selective": 0.1, "full": 1.0}
"""Share of the forward that backward recomputes."""


@dataclass(frozen=True)
class StepTime:
    """Seconds per step by activity, on the slowest rank."""

    matmul_s: float
    attention_s: float
    memory_s: float
    """Memory-bound operations: norms, activations, dropout."""
    launch_s: float
    """Additional time for launching kernels."""
    tensor_s: float
    """Collectives of tensor parallelism."""
    context_s: float
    """Exchange of keys and values in context parallelism."""
    pipeline_s: float
    """Sends between pipeline stages."""
    bubble_s: float
    data_s: float
    """Gathers and reductions of data parallelism that compute does not hide."""
    optimizer_s: float
    other_s: float
    """Stragglers, and the fixed cost of a step."""

    @property
    def step_s(self) -> float:
        """Seconds of the complete step."""
        return sum(vars(self).values())


@dataclass(frozen=True)
class _Group:
    """Ranks of one parallel degree, with the speed of the links between them."""

    ranks: int
    bandwidth_bytes_s: float
    latency_s: float
    half_bytes: float
    gain: float = 1.0

    def half_s(self, size_bytes: float) -> float:
        """Return the seconds of an all-gather or reduce-scatter."""
        if self.ranks == 1:
            return 0.0
        return ring_half_s(size_bytes + self.half_bytes, self.ranks, self.bandwidth_bytes_s, self.latency_s)

    def reduce_s(self, size_bytes: float) -> float:
        """Return the seconds of an all-reduce."""
        return 2 * self.half_s(size_bytes) / self.gain


def group(cluster: Cluster, ranks: int, stride: int, constants: Constants) -> _Group:
    """Return the group of `ranks` ranks with distance `stride`.

    Inside one domain, the ranks use its link. Otherwise they use ports that the groups of a domain share.
    """
    link = cluster.link
    latency_s = 0.0 if cluster.costs else link.latency_s  # measured overheads include it
    inside = max(1, min(ranks, cluster.domain // stride))
    if inside >= ranks:
        start, gain = NVLS_GAIN.get(cluster.device.link, (ranks + 1, 1.0))
        width = link.bandwidth_of(ranks) * constants.inner_link
        return _Group(ranks, width, latency_s, link.half_bytes, gain if ranks >= start else 1.0)
    width = min(cluster.network_bytes_s * inside * constants.outer_link, link.bandwidth_bytes_s * constants.inner_link)
    return _Group(ranks, width, latency_s, link.half_bytes)


def step_time(work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """Return the seconds of one step."""
    return add_data_parallelism(core_time(work, cluster, plan, constants), work, cluster, plan, constants)


def add_data_parallelism(core: StepTime, work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """Add the time of data parallelism and of the optimizer to `core`."""
    parameters = _rank_parameters(work, plan)
    busy_s = (core.matmul_s + core.attention_s + core.memory_s + core.launch_s) / plan.micro_batches(work)
    spread = 1 if plan.sharding == "ddp" else plan.shards
    stretch = _stretch(step_cost(cluster, plan))
    return replace(
        core,
        data_s=stretch * _data_s(plan, cluster, constants, parameters, work, busy_s),
        optimizer_s=core.optimizer_s + stretch * parameters / spread * _OPTIMIZER_BYTES / cluster.device.memory_bytes_s,
    )


def core_time(work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """Return the seconds of one step without data parallelism and without the optimizer's update.

    They are equal for all shardings with the same `cost_kind`.
    """
    model, layout, c = work.model, plan.layout, constants
    count = plan.micro_batches(work)
    layers = math.ceil(model.layers / (layout.pp * plan.virtual)) * plan.virtual if layout.pp > 1 else model.layers
    recomputed = _RECOMPUTED[plan.checkpointing] if plan.recomputed is None else plan.recomputed
    tokens = plan.micro_batch * work.sequence / layout.cp
    forward = _forward(work, cluster, plan, c, tokens)
    passes = count * layers * (3.0 + recomputed)
    tensor_s = count * layers * _tensor_s(work, cluster, plan, c, tokens, recomputed)
    context_s = count * layers * _context_s(work, cluster, plan, c, tokens, (3.0 + recomputed))
    pipeline_s = count * _pipeline_s(work, cluster, plan, c, tokens)
    cost = step_cost(cluster, plan)
    stretch = _stretch(cost)
    parts = StepTime(
        matmul_s=stretch * (passes * forward.matmul_s + count * _logits_s(work, cluster, plan, c, tokens)),
        attention_s=stretch * passes * forward.attention_s,
        memory_s=stretch * passes * forward.memory_s,
        launch_s=passes * forward.launch_s,
        tensor_s=stretch * tensor_s,
        context_s=context_s,
        pipeline_s=stretch * pipeline_s,
        bubble_s=0.0,
        data_s=0.0,
        optimizer_s=0.0,
        other_s=0.0,
    )
    work_s = parts.step_s
    if cost is not None:
        measured = layers * min(2, layout.pp)  # the probe measures pipelines with two stages, per layer of both
        parts = replace(parts, launch_s=measured * (count * (1 + recomputed / 3) * cost.pass_s + cost.layer_s))
    accumulation_s = _rank_parameters(work, plan) * _ACCUMULATED_BYTES / cluster.device.memory_bytes_s
    doublings = math.log2(max(1.0, cluster.gpus / _NODE))
    return replace(
        parts,
        bubble_s=_bubble_s(work_s, bubble_overhead(layout.pp, count, plan.schedule, plan.virtual), cost),
        optimizer_s=stretch * count * accumulation_s if count > 1 else 0.0,
        other_s=_fixed_s(count, cost, c) + c.doubling * doublings * work_s,
    )


def step_cost(cluster: Cluster, plan: Plan) -> StepCost | None:
    """Return the measured overhead of this kind of layout; the sum for tensor plus pipeline parallelism."""
    kind, costs = cost_kind(cluster, plan), cluster.costs
    if kind != "tp+pp":
        return costs[kind] if costs else None
    tensor, pipeline, sharded = (vars(costs[name]) for name in ("tp", "pp", "fsdp"))
    added = {name: max(0.0, tensor[name] + pipeline[name] - sharded[name]) for name in tensor}
    return StepCost(**{**added, "stretch": max(tensor["stretch"], pipeline["stretch"])})


def cost_kind(cluster: Cluster, plan: Plan) -> str:
    """Return the kind of measured overhead of a plan: `ddp`, `fsdp`, `tp`, `pp` or `tp+pp`; empty if not measured."""
    layout, costs = plan.layout, cluster.costs
    if not costs:
        return ""
    split = "+".join(name for name in ("tp", "pp") if getattr(layout, name) > 1 and name in costs)
    return split or ("fsdp" if plan.sharding in ("fsdp", "zero2") else "ddp")


def _stretch(cost: StepCost | None) -> float:
    return 1.0 if cost is None else cost.stretch


def _fixed_s(count: int, cost: StepCost | None, c: Constants) -> float:
    return c.step_s if cost is None else cost.step_s + count * cost.micro_batch_s


def _bubble_s(work_s: float, overhead: float, cost: StepCost | None) -> float:
    """Return the idle time of the pipeline. Ranks that share cores use each other's idle time."""
    if cost is None:
        return work_s * overhead
    return work_s * max(0.0, (1 + overhead) / cost.crowding - 1)


@dataclass(frozen=True)
class _Forward:
    """One layer's forward of one micro-batch, without communication."""

    matmul_s: float
    attention_s: float
    memory_s: float
    launch_s: float


def _forward(work: Work, cluster: Cluster, plan: Plan, c: Constants, tokens: float) -> _Forward:
    model, device, tp = work.model, cluster.device, plan.layout.tp
    products = _products(work, cluster, c)
    attended, keys = model.heads * model.width, model.groups * model.width
    shapes = (
        (model.hidden, (attended + 2 * keys) / tp, 1),
        (attended / tp, model.hidden, 1),
        (model.hidden, model.inner / tp, (2 if model.gated else 1) * model.active_experts),
        (model.inner / tp, model.hidden, model.active_experts),
    )
    ratio = c.tile * _width(work) * products / device.memory_bytes_s
    operations = 0.0
    for k, n, times in shapes:
        grain = c.misaligned if min(k, n) % 64 else 1.0
        operations += times * 2 * tokens * k * n * (grain + ratio * (1 / k + 1 / n + 1 / tokens))
    matmul_s = operations / (products * c.matmul)
    penalty = c.misaligned_heads if model.width % 8 else 1.0
    scores = tokens * model.attention_flops_per_token(work.sequence) * penalty / tp
    attention_s = scores / (_sixteen(work, cluster) * c.attention)
    stored = layer_activation_bytes(
        tokens, model.hidden, model.heads, work.sequence, tp,
        sequence_parallel=plan.sequence_parallel, flash=work.flash,
    )  # fmt: skip
    memory_s = c.passes * _width(work) * stored / device.memory_bytes_s
    busy_s = matmul_s + attention_s + memory_s
    launch_s = 0.0 if cluster.costs else (busy_s**3 + c.launch_s**3) ** (1 / 3) - busy_s
    return _Forward(matmul_s, attention_s, memory_s, launch_s)


def _width(work: Work) -> float:
    """Return the bytes of an activation or a sent parameter relative to 16 bits."""
    return {"fp32": 2.0, "fp64": 4.0}.get(work.precision, 1.0)


def _sixteen(work: Work, cluster: Cluster) -> float:
    """Return the operations per second of computation that never uses 8 or 4 bits."""
    return cluster.device.flops("bf16" if work.precision in _NARROW else work.precision)


def _products(work: Work, cluster: Cluster, c: Constants) -> float:
    """Return the operations per second of matrix multiplications, with a part of the gain of 8 or 4 bits."""
    wide = _sixteen(work, cluster)
    return wide * (cluster.device.flops(work.precision) / wide) ** c.narrow if work.precision in _NARROW else wide


def _tensor_s(work: Work, cluster: Cluster, plan: Plan, c: Constants, tokens: float, recomputed: float) -> float:
    """Return the seconds of a layer's all-reduces: two in forward, two in backward, two in recomputation."""
    ranks = group(cluster, plan.layout.tp, 1, c)
    return (4 + 2 * recomputed) * ranks.reduce_s(2 * _width(work) * tokens * work.model.hidden)


def _context_s(work: Work, cluster: Cluster, plan: Plan, c: Constants, tokens: float, passes: float) -> float:
    """Return the seconds of the ring exchange of keys and values that attention does not hide."""
    model, layout = work.model, plan.layout
    if layout.cp == 1:
        return 0.0
    ring = group(cluster, layout.cp, layout.tp, c)
    sent_s = ring.half_s(4 * _width(work) * tokens * model.groups * model.width / layout.tp * layout.cp)
    scores = tokens * model.attention_flops_per_token(work.sequence) / layout.tp
    attention_s = scores / (_sixteen(work, cluster) * c.attention)
    return passes * max(0.0, sent_s - c.hidden * attention_s)


def _logits_s(work: Work, cluster: Cluster, plan: Plan, c: Constants, tokens: float) -> float:
    """Return the seconds of the output layer, forward and backward, for which all stages wait."""
    rows = tokens * work.model.vocabulary / plan.layout.tp
    product_s = 2 * rows * work.model.hidden / (_products(work, cluster, c) * c.matmul)
    return 3 * (product_s + c.passes * 2 * _width(work) * rows / cluster.device.memory_bytes_s)


def _pipeline_s(work: Work, cluster: Cluster, plan: Plan, c: Constants, tokens: float) -> float:
    """Return the seconds of a stage's sends per micro-batch, forward and backward, by all tensor-parallel ranks."""
    layout = plan.layout
    if layout.pp == 1:
        return 0.0
    if layout.tp * layout.cp * layout.data_degree >= cluster.domain:
        lane = cluster.network_bytes_s * c.outer_link
    else:
        lane = cluster.link.bandwidth_bytes_s * c.inner_link
    return 2 * plan.virtual * 2 * _width(work) * tokens * work.model.hidden / layout.tp / lane


def _rank_parameters(work: Work, plan: Plan) -> float:
    """Return the number of parameters in a rank's part of the model."""
    model, layout = work.model, plan.layout
    return (model.layers / layout.pp * model.layer_parameters + model.embedding_parameters) / layout.tp


def _data_s(plan: Plan, cluster: Cluster, c: Constants, parameters: float, work: Work, busy_s: float) -> float:
    """Return the seconds per step that data parallelism adds.

    Args:
        busy_s: compute time of one micro-batch, which hides a part of the communication.
    """
    layout = plan.layout
    stride = layout.tp
    size = 2.0 * _width(work) * parameters
    if plan.sharding == "fsdp":
        layers = max(1.0, work.model.layers / layout.pp)
        shard = group(cluster, layout.dp_shard * layout.cp, stride, c)
        replicas = group(cluster, layout.dp_replicate, stride * layout.dp_shard * layout.cp, c)
        reshards = layout.pp == 1  # a pipeline keeps gathered parameters instead of gathering for each micro-batch
        wait = layers * (3 if reshards else 2) * shard.half_s(size / layers)
        rounds = plan.micro_batches(work) if reshards else 1
        exposed = rounds * (wait - c.hidden * min(wait, busy_s))
        return exposed + replicas.reduce_s(size / (layout.dp_shard * layout.cp))
    every = group(cluster, layout.data_degree * layout.cp, stride, c)
    wait = every.reduce_s(size)
    return wait - c.hidden * min(wait, busy_s) if plan.overlap else wait
