"""How long a step takes: a sum of what a rank computes, waits for and sends, each by a formula and the fitted
constants."""

import math
from dataclasses import dataclass, replace

from regroup.service.hardware import LINKS, NVLS_GAIN
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import bubble_overhead, layer_activation_bytes, ring_half_s
from regroup.service.planner.plan import Cluster, Plan, Work

_OPTIMIZER_BYTES = 30.0
"""Memory traffic per parameter of an Adam step: gradient, master and two moments read, all but the gradient written."""
_ACCUMULATED_BYTES = 10.0
"""Memory traffic per parameter of adding a micro-batch's 16-bit gradient to the 32-bit sum."""
_REDONE = {"none": 0.0, "selective": 0.1, "full": 1.0}
"""Share of a forward that is done again."""


@dataclass(frozen=True)
class StepTime:
    """Where a step's seconds go on the rank that takes longest."""

    matmul_s: float
    attention_s: float
    memory_s: float
    """Norms, activations, dropout: bound by memory."""
    launch_s: float
    """What kernels wait to be launched beyond that."""
    tensor_s: float
    """Collectives of tensor parallelism."""
    context_s: float
    """Keys and values that go round."""
    pipeline_s: float
    """Sent between stages."""
    bubble_s: float
    data_s: float
    """What is seen of gathers and reductions of data parallelism."""
    optimizer_s: float
    other_s: float
    """Stragglers, and what every step costs."""

    @property
    def step_s(self) -> float:
        """The whole step."""
        return sum(vars(self).values())


@dataclass(frozen=True)
class _Group:
    """How ranks of one parallel degree lie on domains."""

    ranks: int
    bandwidth_bytes_s: float
    latency_s: float
    half_bytes: float
    gain: float = 1.0

    def half_s(self, size_bytes: float) -> float:
        """All-gather or reduce-scatter."""
        if self.ranks == 1:
            return 0.0
        return ring_half_s(size_bytes + self.half_bytes, self.ranks, self.bandwidth_bytes_s, self.latency_s)

    def reduce_s(self, size_bytes: float) -> float:
        """All-reduce."""
        return 2 * self.half_s(size_bytes) / self.gain


def group(cluster: Cluster, ranks: int, stride: int, constants: Constants) -> _Group:
    """Ranks `stride` apart: inside one domain over its link, else over ports that the groups of a domain share."""
    link = LINKS[cluster.device.link]
    inside = max(1, min(ranks, cluster.domain // stride))
    if inside >= ranks:
        start, gain = NVLS_GAIN.get(cluster.device.link, (ranks + 1, 1.0))
        width = link.bandwidth_of(ranks) * constants.inner_link
        return _Group(ranks, width, link.latency_s, link.half_bytes, gain if ranks >= start else 1.0)
    width = min(cluster.network_bytes_s * inside * constants.outer_link, link.bandwidth_bytes_s * constants.inner_link)
    return _Group(ranks, width, link.latency_s, link.half_bytes)


def step_time(work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """Seconds of one step."""
    return with_data(core_time(work, cluster, plan, constants), work, cluster, plan, constants)


def with_data(core: StepTime, work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """`core` and what data parallelism and the optimizer add to it."""
    held = _held(work, plan)
    busy_s = (core.matmul_s + core.attention_s + core.memory_s + core.launch_s) / plan.micro_batches(work)
    spread = 1 if plan.sharding == "ddp" else plan.shards
    return replace(
        core,
        data_s=_data_s(plan, cluster, constants, held, work, busy_s),
        optimizer_s=core.optimizer_s + held / spread * _OPTIMIZER_BYTES / cluster.device.memory_bytes_s,
    )


def core_time(work: Work, cluster: Cluster, plan: Plan, constants: Constants) -> StepTime:
    """Seconds of one step but for data parallelism and the optimizer's update: the same however parameters are
    sharded."""
    model, layout, c = work.model, plan.layout, constants
    tp, pp, cp = layout.tp, layout.pp, layout.cp
    device = cluster.device
    sixteen = device.flops("bf16" if work.precision in ("fp8", "fp4") else work.precision)
    products = sixteen
    if work.precision in ("fp8", "fp4"):
        products = sixteen * (device.flops(work.precision) / sixteen) ** c.narrow
    tokens = plan.micro_batch * work.sequence / cp
    count = plan.micro_batches(work)
    layers = math.ceil(model.layers / (pp * plan.virtual)) * plan.virtual if pp > 1 else model.layers
    redone = _REDONE[plan.checkpointing] if plan.recomputed is None else plan.recomputed
    rounds = 3.0 + redone

    hidden, inner = model.hidden, model.inner
    heads_width = model.heads * model.width
    key_width = model.groups * model.width
    up = 2 if model.gated else 1
    shapes = (
        (hidden, (heads_width + 2 * key_width) / tp, 1.0),
        (heads_width / tp, hidden, 1.0),
        (hidden, inner / tp, up * model.active_experts),
        (inner / tp, hidden, 1.0 * model.active_experts),
    )
    ratio = c.tile * products / device.memory_bytes_s
    matmul = 0.0
    for k, n, times in shapes:
        grain = c.misaligned if min(k, n) % 64 else 1.0
        matmul += times * 2 * tokens * k * n * (grain + ratio * (1 / k + 1 / n + 1 / tokens))
    matmul /= products * c.matmul
    odd = c.odd_heads if model.width % 8 else 1.0
    attention = tokens * model.attention_flops_per_token(work.sequence) * odd / (tp * sixteen * c.attention)
    kept = layer_activation_bytes(
        tokens, hidden, model.heads, work.sequence, tp, sequence_parallel=plan.sequence_parallel, flash=work.flash
    )
    memory = c.passes * kept / device.memory_bytes_s
    busy = matmul + attention + memory
    launch = (busy**3 + c.launch_s**3) ** (1 / 3) - busy

    tensor = group(cluster, tp, 1, c)
    exchanges = (4 + 2 * redone) if tp > 1 else 0.0
    tensor_s = exchanges * tensor.reduce_s(2 * tokens * hidden)
    ring = group(cluster, cp, tp, c)
    sent = 2 * 2 * tokens * key_width / tp * cp
    context_s = max(0.0, rounds * ring.half_s(sent) - c.hidden * rounds * attention) if cp > 1 else 0.0

    head = 2 * tokens * hidden * model.vocabulary / tp
    logits = 3 * (head / (products * c.matmul) + c.passes * 2 * tokens * model.vocabulary / tp / device.memory_bytes_s)
    per_layer = rounds * (busy + launch) + tensor_s + context_s
    passed = 0.0
    if pp > 1:
        stride = tp * cp * layout.data_degree
        far = stride >= cluster.domain
        lane = cluster.network_bytes_s * c.outer_link if far else LINKS[device.link].bandwidth_bytes_s * c.inner_link
        passed = 2 * plan.virtual * 2 * tokens * hidden / tp / lane
    stage = layers * per_layer + logits + passed
    bubble = bubble_overhead(pp, count, plan.schedule, plan.virtual) if pp > 1 else 0.0
    work_s = count * stage

    added_s = count * _held(work, plan) * _ACCUMULATED_BYTES / device.memory_bytes_s if count > 1 else 0.0
    doublings = math.log2(max(1.0, cluster.gpus / 8))
    return StepTime(
        matmul_s=count * layers * rounds * matmul + count * logits,
        attention_s=count * layers * rounds * attention,
        memory_s=count * layers * rounds * memory,
        launch_s=count * layers * rounds * launch,
        tensor_s=count * layers * tensor_s,
        context_s=count * layers * context_s,
        pipeline_s=count * passed,
        bubble_s=work_s * bubble,
        data_s=0.0,
        optimizer_s=added_s,
        other_s=c.step_s + c.doubling * doublings * work_s,
    )


def _held(work: Work, plan: Plan) -> float:
    """Parameters of a rank's part of the model."""
    model, layout = work.model, plan.layout
    return (model.layers / layout.pp * model.layer_parameters + model.embedding_parameters) / layout.tp


def _data_s(plan: Plan, cluster: Cluster, c: Constants, held: float, work: Work, busy_s: float) -> float:
    """What a step waits for data parallelism; `busy_s` is one micro-batch's compute, which hides a part of it."""
    layout = plan.layout
    stride = layout.tp
    size = 2.0 * held
    if plan.sharding == "fsdp":
        layers = max(1.0, work.model.layers / layout.pp)
        shard = group(cluster, layout.dp_shard * layout.cp, stride, c)
        replicas = group(cluster, layout.dp_replicate, stride * layout.dp_shard * layout.cp, c)
        again = layout.pp == 1  # a pipeline keeps what it gathered: it would gather again for every micro-batch
        wait = layers * (3 if again else 2) * shard.half_s(size / layers)
        rounds = plan.micro_batches(work) if again else 1
        seen = rounds * (wait - c.hidden * min(wait, busy_s))
        return seen + replicas.reduce_s(size / (layout.dp_shard * layout.cp))
    every = group(cluster, layout.data_degree * layout.cp, stride, c)
    wait = every.reduce_s(size)
    return wait - c.hidden * min(wait, busy_s) if plan.overlap else wait
