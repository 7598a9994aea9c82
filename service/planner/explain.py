"""What a search came to, for people and programs: the best plans taken apart, and why the others lost."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import bubble_share, failures_goodput
from regroup.service.planner.memory_model import host_bytes, peak_bytes, stage_memory
from regroup.service.planner.search import Choice, Found, Limits, kind
from regroup.service.planner.time_model import StepTime, step_time
from regroup.service.planner.to_spec import as_spec, obstacles
from regroup.service.planner.types import Cluster, Plan, Work
from regroup.service.planner.validation import said_of
from regroup.service.policy.measurements.hardware_overlay import MeasuredValue

DEVICE_MTTF_S = 50_000 * 3600.0
"""One device's share of the failures that stop a job: 419 in 54 days on 16,384 H100 (Llama 3 herd, section 3.3.4)."""
RECOVERY_S = 60.0
"""From a failure to the next step on GPUs, a step lost apart; design value."""
_COPY_BYTES_S = 25e9
"""A device's state to host memory while its neighbours do the same."""
_STATE_BYTES = 12.0
_MOST_RUNGS = 12
_PARTS: Mapping[str, str] = {
    "matmul_s": "matrix products",
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
    """What a plan is weighed by beside its speed."""

    gpu_hour: float | None = None
    """In any currency; None leaves cost out."""
    device_mttf_s: float = DEVICE_MTTF_S
    recovery_s: float = RECOVERY_S


@dataclass(frozen=True)
class Explained:
    """One plan, taken apart. Seconds, bytes, fractions."""

    layout: Layout
    kind: str
    sharding: str
    micro_batch: int
    micro_batches: int
    """Of a step on each data rank."""
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
    """Share of time in committed steps, with the failures that so many devices have."""
    snapshot_stall_s: float
    cost_per_billion_tokens: float | None
    time: Mapping[str, float]
    """Seconds of a step by what they go to."""
    memory: tuple[Mapping[str, float], ...]
    """Bytes on a device of each stage by what they hold, and `total`."""
    peak_bytes: float
    capacity_bytes: float
    host_bytes: float
    """Of a node, for snapshots and mirrors."""
    why: str
    spec: Mapping[str, Any]
    """The parts of a job spec that say this plan."""
    obstacles: tuple[str, ...]
    """What keeps the built-in trainer from running it; empty if it can."""


@dataclass(frozen=True)
class Lost:
    """A kind of layout that is not among the best."""

    kind: str
    layout: Layout
    fits: bool
    step_s: float | None
    """None if it does not fit."""
    peak_bytes: float
    why: str


@dataclass(frozen=True)
class Rung:
    """The best plan at another number of devices."""

    gpus: int
    layout: Layout
    fits: bool
    step_s: float
    tokens_s: float


@dataclass(frozen=True)
class Report:
    """The answer."""

    question: str
    parameters: int
    plans: tuple[Explained, ...]
    lost: tuple[Lost, ...]
    ladder: tuple[Rung, ...]
    figures: tuple[MeasuredValue, ...] = ()
    """What of the hardware was measured, and when; all else is the table's."""

    @property
    def markdown(self) -> str:
        """The report as a page."""
        return _markdown(self)


def explain(
    work: Work, cluster: Cluster, found: Found, constants: Constants, limits: Limits, prices: Prices | None = None
) -> Report:
    """The best plans of `found` taken apart, why others lost, and the sizes the best can move between."""
    constants = constants.on(cluster.device)
    best = found.best[0]
    plans = tuple(_explained(work, cluster, each, best, constants, limits, prices or Prices()) for each in found.best)
    slower = tuple(
        Lost(kind(each.plan), each.plan.layout, True, each.time.step_s, each.peak_bytes, _slower(each.time, best.time))
        for each in found.notable
    )
    too_large = tuple(
        Lost(
            kind=kind(each.plan),
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
            f"{work.model.parameters / 1e9:.3g}B parameters, {work.global_batch} samples of {work.sequence} tokens a"
            f" step in {work.precision}, on {cluster.gpus} × {cluster.device.name}, {cluster.domain} to a domain"
        ),
        parameters=work.model.parameters,
        plans=plans,
        lost=slower + too_large,
        ladder=ladder(work, cluster, best.plan, constants, limits),
    )


def ladder(work: Work, cluster: Cluster, plan: Plan, constants: Constants, limits: Limits) -> tuple[Rung, ...]:
    """Data-parallel degrees up to the plan's that split its shards and the batch evenly, the smallest that fits
    first."""
    layout, rungs = plan.layout, list[Rung]()
    model_parallel = layout.tp * layout.pp * layout.cp
    slots = work.global_batch // plan.micro_batch
    for data in range(1, layout.data_degree + 1):
        if layout.data_degree % data and data & (data - 1):
            continue
        micro_batches = -(-slots // data)
        if plan.schedule.startswith("interleaved") and layout.pp > 1 and micro_batches % layout.pp:
            continue
        at = _at(layout, data)
        if at is None:
            continue
        gpus = data * model_parallel
        moved, there = replace(plan, layout=at), replace(cluster, gpus=gpus)
        step_s = step_time(work, there, moved, constants).step_s
        fits = peak_bytes(work, moved, constants, limits.kept) <= cluster.device.memory_bytes
        rungs.append(Rung(gpus, at, fits, step_s, work.global_batch * work.sequence / step_s))
    fitting = [rung for rung in rungs if rung.fits]
    return tuple(fitting[-_MOST_RUNGS:])


def _at(layout: Layout, data: int) -> Layout | None:
    if layout.dp_shard == 1:
        return replace(layout, dp_replicate=data)
    if layout.dp_replicate == 1:
        return replace(layout, dp_shard=data)
    if data % layout.dp_shard:
        return None
    return replace(layout, dp_replicate=data // layout.dp_shard)


def _explained(
    work: Work, cluster: Cluster, choice: Choice, best: Choice, constants: Constants, limits: Limits, prices: Prices
) -> Explained:
    plan, time = choice.plan, choice.time
    layout = plan.layout
    tokens = work.global_batch * work.sequence
    peak = cluster.device.flops(work.precision) / cluster.device.ceiling
    states = _STATE_BYTES * work.model.parameters / (layout.tp * layout.pp * plan.shards)
    stall_s = max(0.0, states / _COPY_BYTES_S - time.step_s)
    lost_s = prices.recovery_s + time.step_s
    goodput = failures_goodput(time.step_s, prices.device_mttf_s, cluster.gpus, lost_s, stall_s)
    hours = cluster.gpus * time.step_s / 3600
    return Explained(
        layout=layout,
        kind=kind(plan),
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
            {**vars(stage), "total": stage.total} for stage in stage_memory(work, plan, constants, limits.kept)
        ),
        peak_bytes=choice.peak_bytes,
        capacity_bytes=cluster.device.memory_bytes,
        host_bytes=host_bytes(work, plan, cluster.domain, mirror=cluster.gpus > cluster.domain),
        why=_first(choice, cluster) if choice is best else _slower(time, best.time),
        spec=as_spec(work, plan),
        obstacles=tuple(obstacles(work, plan)),
    )


def _first(choice: Choice, cluster: Cluster) -> str:
    time = choice.time
    costs = sorted(_PARTS, key=lambda name: -getattr(time, name))
    shares = [f"{_PARTS[name]} {100 * getattr(time, name) / time.step_s:.0f} %" for name in costs[:4]]
    room = f"{choice.peak_bytes / 1e9:.0f} of {cluster.device.memory_bytes / 1e9:.0f} GB"
    return f"fastest that fits ({room}): {', '.join(shares)}"


def _slower(time: StepTime, best: StepTime) -> str:
    """By how much, and what of it most."""
    more = {name: getattr(time, name) - getattr(best, name) for name in _PARTS}
    worst = max(more, key=lambda name: more[name])
    share = 100 * (time.step_s / best.step_s - 1)
    if more[worst] <= 0:
        return "as fast"
    return f"{share:.1f} % slower: {more[worst]:.3g} s more for {_PARTS[worst]}"


def _too_large(work: Work, choice: Choice, room_bytes: float, constants: Constants, limits: Limits) -> str:
    stages = stage_memory(work, choice.plan, constants, limits.kept)
    fullest = max(stages, key=lambda stage: stage.total)
    parts = sorted(vars(fullest).items(), key=lambda part: -part[1])[:3]
    most = ", ".join(f"{name} {size / 1e9:.0f} GB" for name, size in parts)
    return (
        f"does not fit: at least {choice.peak_bytes / 1e9:.0f} GB of {room_bytes / 1e9:.0f}, even with"
        f" {said_of(choice.plan)} ({most})"
    )


def _markdown(report: Report) -> str:
    best = report.plans[0]
    lines = [
        f"# {report.question}",
        "",
        f"**{best.layout}**, {best.sharding}, micro-batch {best.micro_batch}, checkpointing {best.checkpointing}"
        + (f", {best.schedule}" if best.layout.pp > 1 else "")
        + f": {best.step_s:.3g} s a step, {best.tokens_s_gpu:,.0f} tokens/s a device, MFU {100 * best.mfu:.1f} %,"
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
    lines += ["", "## Why not", "", "| kind | layout | why |", "|---|---|---|"]
    lines += [f"| {each.kind} | {each.layout} | {each.why} |" for each in report.lost]
    lines += ["", "## Ladder", "", "| devices | layout | step s | tokens/s |", "|---:|---|---:|---:|"]
    lines += [f"| {each.gpus} | {each.layout} | {each.step_s:.3g} | {each.tokens_s:,.0f} |" for each in report.ladder]
    return "\n".join([*lines, *(["", "## Measured", "", *map(str, report.figures)] if report.figures else [])]) + "\n"
