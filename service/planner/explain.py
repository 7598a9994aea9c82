"""Report of a search: the best plans with their details, and the reasons against the others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import bubble_share, failures_goodput
from regroup.service.planner.memory_model import host_bytes, host_sets, peak_bytes, stage_memory
from regroup.service.planner.search import EvaluatedPlan, Limits, SearchResult, layout_kind
from regroup.service.planner.time_model import StepTime, step_time
from regroup.service.planner.to_spec import find_obstacles, to_spec_fields
from regroup.service.planner.types import Cluster, Plan, Work
from regroup.service.planner.validation import describe_savings
from regroup.service.policy.measurements.hardware_overlay import MeasuredValue
from regroup.service.spec.ladder import find_divisors

DEVICE_MTTF_S = 50_000 * 3600.0
"""Mean time between failures of one device that stop a job: 419 in 54 days on 16,384 H100 (Llama 3, section 3.3.4)."""
RECOVERY_S = 60.0
"""Time from a failure to the next step on GPUs, without the lost step; a design value."""
_COPY_BYTES_S = 25e9
"""Bandwidth of the copy from a device to host memory while all devices of the node copy."""
_STATE_BYTES = 12.0
_MAX_LADDER_SIZES = 12
_PARTS: Mapping[str, str] = {
    "matmul_s": "matrix multiplications",
    "attention_s": "attention",
    "memory_s": "norms and activations",
    "launch_s": "kernel launches",
    "tensor_s": "tensor-parallel collectives",
    "context_s": "context-parallel exchange",
    "pipeline_s": "sends between stages",
    "bubble_s": "pipeline bubble",
    "data_s": "gathers and reductions of data parallelism",
    "optimizer_s": "optimizer and gradient sums",
    "other_s": "stragglers and fixed cost",
}


@dataclass(frozen=True)
class Prices:
    """Inputs of cost and goodput."""

    gpu_hour: float | None = None
    """Price of a device-hour in any currency; None for a report without cost."""
    device_mttf_s: float = DEVICE_MTTF_S
    recovery_s: float = RECOVERY_S


@dataclass(frozen=True)
class PlanDetails:
    """Details of a plan. Units are seconds, bytes and fractions."""

    layout: Layout
    kind: str
    sharding: str
    micro_batch: int
    micro_batches: int
    """Micro-batches per step of each data rank."""
    checkpointing: str
    schedule: str
    stages_per_rank: int
    step_s: float
    tokens_s: float
    tokens_s_gpu: float
    mfu: float
    bubble: float
    """Idle share of the pipeline."""
    goodput: float
    """Share of time in committed steps, with the expected failures of this number of devices."""
    snapshot_stall_s: float
    cost_per_billion_tokens: float | None
    time: Mapping[str, float]
    """Seconds per step by activity."""
    memory: tuple[Mapping[str, float], ...]
    """Bytes on a device of each stage by content, and `total`."""
    peak_bytes: float
    capacity_bytes: float
    host_bytes: float
    """Host memory of a node for snapshots and mirrors."""
    why: str
    spec: Mapping[str, Any]
    """Fields of a job spec for this plan."""
    obstacles: tuple[str, ...]
    """Reasons why the built-in trainer cannot run the plan; empty if it can."""


@dataclass(frozen=True)
class RejectedPlan:
    """The best plan of a kind of layout that is not among the best plans."""

    kind: str
    layout: Layout
    fits: bool
    step_s: float | None
    """None if it does not fit."""
    peak_bytes: float
    why: str


@dataclass(frozen=True)
class LadderSize:
    """The best plan with another number of devices."""

    gpus: int
    layout: Layout
    fits: bool
    step_s: float
    tokens_s: float


@dataclass(frozen=True)
class Report:
    """Report of a search."""

    question: str
    parameters: int
    plans: tuple[PlanDetails, ...]
    lost: tuple[RejectedPlan, ...]
    ladder: tuple[LadderSize, ...]
    measured_values: tuple[MeasuredValue, ...] = ()
    """Measured values of the hardware. All others are from the hardware table."""

    @property
    def markdown(self) -> str:
        """Markdown page with the report."""
        return _markdown(self)


def explain(
    work: Work,
    cluster: Cluster,
    found: SearchResult,
    constants: Constants,
    limits: Limits,
    prices: Prices | None = None,
) -> Report:
    """Report the best plans of `found`, the reasons against the others, and the size ladder of the best plan."""
    constants = constants.on(cluster.device)
    best = found.best[0]
    plans = tuple(_details(work, cluster, each, best, constants, limits, prices or Prices()) for each in found.best)
    slower = tuple(
        RejectedPlan(
            layout_kind(each.plan),
            each.plan.layout,
            True,
            each.time.step_s,
            each.peak_bytes,
            _slower(each.time, best.time),
        )
        for each in found.notable
    )
    too_large = tuple(
        RejectedPlan(
            kind=layout_kind(each.plan),
            layout=each.plan.layout,
            fits=False,
            step_s=None,
            peak_bytes=each.peak_bytes,
            why=_too_large(work, each, cluster.device.memory_bytes, constants, limits),
        )
        for each in found.too_large
    )
    return Report(
        question=(
            f"{work.model.parameters / 1e9:.3g}B parameters, {work.global_batch} samples of {work.sequence} tokens per"
            f" step in {work.precision}, on {cluster.gpus} × {cluster.device.name}, {cluster.domain} per domain"
        ),
        parameters=work.model.parameters,
        plans=plans,
        lost=slower + too_large,
        ladder=size_ladder(work, cluster, best.plan, constants, limits),
    )


def size_ladder(
    work: Work, cluster: Cluster, plan: Plan, constants: Constants, limits: Limits
) -> tuple[LadderSize, ...]:
    """Return the sizes that fit up to the plan's, smallest first.

    Each data-parallel degree divides the plan's shards and the batch evenly.
    """
    layout, sizes = plan.layout, list[LadderSize]()
    model_parallel = layout.tp * layout.pp * layout.cp
    slots = work.global_batch // plan.micro_batch
    powers = {1 << exponent for exponent in range(layout.data_degree.bit_length())}
    for data in sorted({*find_divisors(layout.data_degree), *powers}):
        micro_batches = -(-slots // data)
        if plan.schedule.startswith("interleaved") and layout.pp > 1 and micro_batches % layout.pp:
            continue
        resized_layout = _resized(layout, data)
        if resized_layout is None:
            continue
        gpus = data * model_parallel
        resized = replace(plan, layout=resized_layout)
        step_s = step_time(work, replace(cluster, gpus=gpus), resized, constants).step_s
        fits = peak_bytes(work, resized, constants, limits.states) <= cluster.device.memory_bytes
        sizes.append(LadderSize(gpus, resized_layout, fits, step_s, work.global_batch * work.sequence / step_s))
    fitting = [size for size in sizes if size.fits]
    return tuple(fitting[-_MAX_LADDER_SIZES:])


def _resized(layout: Layout, data: int) -> Layout | None:
    if layout.dp_shard == 1:
        return replace(layout, dp_replicate=data)
    if layout.dp_replicate == 1:
        return replace(layout, dp_shard=data)
    if data % layout.dp_shard:
        return None
    return replace(layout, dp_replicate=data // layout.dp_shard)


def _details(
    work: Work,
    cluster: Cluster,
    choice: EvaluatedPlan,
    best: EvaluatedPlan,
    constants: Constants,
    limits: Limits,
    prices: Prices,
) -> PlanDetails:
    plan, time = choice.plan, choice.time
    layout = plan.layout
    tokens = work.global_batch * work.sequence
    peak = cluster.device.flops(work.precision) / cluster.device.ceiling
    states = _STATE_BYTES * work.model.parameters / (layout.tp * layout.pp * plan.shards)
    stall_s = max(0.0, states / _COPY_BYTES_S - time.step_s)
    lost_s = prices.recovery_s + time.step_s
    goodput = failures_goodput(time.step_s, prices.device_mttf_s, cluster.gpus, lost_s, stall_s)
    hours = cluster.gpus * time.step_s / 3600
    return PlanDetails(
        layout=layout,
        kind=layout_kind(plan),
        sharding=plan.sharding,
        micro_batch=plan.micro_batch,
        micro_batches=plan.micro_batches(work),
        checkpointing=plan.checkpointing,
        schedule=plan.schedule,
        stages_per_rank=plan.virtual,
        step_s=time.step_s,
        tokens_s=tokens / time.step_s,
        tokens_s_gpu=tokens / time.step_s / cluster.gpus,
        mfu=work.model.step_flops(work.global_batch, work.sequence) / (time.step_s * cluster.gpus * peak),
        bubble=bubble_share(layout.pp, plan.micro_batches(work), plan.schedule, plan.virtual),
        goodput=goodput,
        snapshot_stall_s=stall_s,
        cost_per_billion_tokens=None if prices.gpu_hour is None else prices.gpu_hour * hours / goodput / tokens * 1e9,
        time=dict(vars(time)),
        memory=tuple(
            {**vars(stage), "total": stage.total} for stage in stage_memory(work, plan, constants, limits.states)
        ),
        peak_bytes=choice.peak_bytes,
        capacity_bytes=cluster.device.memory_bytes,
        host_bytes=host_bytes(work, plan, cluster.domain, mirror=cluster.gpus > cluster.domain),
        why=_fastest(work, choice, cluster) if choice is best else _slower(time, best.time),
        spec=to_spec_fields(work, plan),
        obstacles=tuple(find_obstacles(work, plan)),
    )


def _fastest(work: Work, choice: EvaluatedPlan, cluster: Cluster) -> str:
    time = choice.time
    costs = sorted(_PARTS, key=lambda name: -getattr(time, name))
    shares = [f"{_PARTS[name]} {100 * getattr(time, name) / time.step_s:.0f} %" for name in costs[:4]]
    memory = f"{choice.peak_bytes / 1e9:.0f} of {cluster.device.memory_bytes / 1e9:.0f} GB"
    return f"fastest that fits ({memory}; {_host_memory(work, choice.plan, cluster)}): {', '.join(shares)}"


def _host_memory(work: Work, plan: Plan, cluster: Cluster) -> str:
    """Describe the host memory of each rank."""
    mirror, ranks = cluster.gpus > cluster.domain, min(cluster.domain, plan.layout.world_size)
    sets, rank_gb = host_sets(mirror=mirror), host_bytes(work, plan, cluster.domain, mirror=mirror) / ranks / 1e9
    kinds = "snapshots and mirrors" if mirror else "snapshots"
    return f"host memory of each rank {rank_gb:.3g} GB, {sets} sets of {rank_gb / sets:.3g} GB for {kinds}"


def _slower(time: StepTime, best: StepTime) -> str:
    """Describe the relative time of a plan, and the activity with the largest difference."""
    more = {name: getattr(time, name) - getattr(best, name) for name in _PARTS}
    worst = max(more, key=lambda name: more[name])
    share = 100 * (time.step_s / best.step_s - 1)
    if more[worst] <= 0:
        return "equally fast"
    return f"{share:.1f} % slower: {more[worst]:.3g} s more for {_PARTS[worst]}"


def _too_large(work: Work, choice: EvaluatedPlan, capacity_bytes: float, constants: Constants, limits: Limits) -> str:
    stages = stage_memory(work, choice.plan, constants, limits.states)
    fullest = max(stages, key=lambda stage: stage.total)
    parts = sorted(vars(fullest).items(), key=lambda part: -part[1])[:3]
    largest = ", ".join(f"{name} {size / 1e9:.0f} GB" for name, size in parts)
    return (
        f"does not fit: at least {choice.peak_bytes / 1e9:.0f} GB of {capacity_bytes / 1e9:.0f}, even with"
        f" {describe_savings(choice.plan)} ({largest})"
    )


def _markdown(report: Report) -> str:
    best = report.plans[0]
    lines = [
        f"# {report.question}",
        "",
        f"**{best.layout}**, {best.sharding}, micro-batch {best.micro_batch}, checkpointing {best.checkpointing}"
        + (f", {best.schedule}" if best.layout.pp > 1 else "")
        + f": {best.step_s:.3g} s per step, {best.tokens_s_gpu:,.0f} tokens/s per device, MFU {100 * best.mfu:.1f} %,"
        f" goodput {100 * best.goodput:.2f} %.",
        "",
        "| layout | sharding | micro-batch | checkpointing | schedule | step s | MFU % | memory GB | why |",
        "|---|---|---:|---|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {each.layout} | {each.sharding} | {each.micro_batch} | {each.checkpointing} | {each.schedule} |"
        f" {each.step_s:.3g} | {100 * each.mfu:.1f} | {each.peak_bytes / 1e9:.1f} | {each.why} |"
        for each in report.plans
    ]
    runnable = next((each for each in report.plans if not each.obstacles), None)
    if runnable:
        lines += ["", f"`{runnable.layout}` in a job spec:", "", "```json", json.dumps(runnable.spec, indent=1), "```"]
    else:
        lines += ["", f"No job can run any of these yet: {best.obstacles[0]}"]
    lines += ["", "## Where the step goes", "", "| what | s | % |", "|---|---:|---:|"]
    lines += [
        f"| {_PARTS[name]} | {seconds:.3g} | {100 * seconds / best.step_s:.1f} |"
        for name, seconds in best.time.items()
        if seconds > 0
    ]
    lines += ["", "## Other kinds of layouts", "", "| kind | layout | why |", "|---|---|---|"]
    lines += [f"| {each.kind} | {each.layout} | {each.why} |" for each in report.lost]
    lines += ["", "## Size ladder", "", "| devices | layout | step s | tokens/s |", "|---:|---|---:|---:|"]
    lines += [f"| {each.gpus} | {each.layout} | {each.step_s:.3g} | {each.tokens_s:,.0f} |" for each in report.ladder]
    if report.measured_values:
        lines += ["", "## Measured", "", *map(str, report.measured_values)]
    return "\n".join(lines) + "\n"
