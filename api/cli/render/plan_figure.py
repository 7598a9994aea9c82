"""A picture of the best plan: memory per stage against capacity, parts of the step time, the pipeline over time."""

from pathlib import Path
from typing import Any

from regroup.api.schemas.plans import Plan, PlanReport
from regroup.service.domain.errors import UnavailableError
from regroup.service.planner.pipeline_timeline import timeline

_GIGA = 1e9
_LEAST_SHARE = 0.005
"""Smallest share of a step that gets its own colour."""
_MAX_MICRO_BATCHES = 24
"""More micro-batches cannot be distinguished in a picture."""


def draw(report: PlanReport, path: Path) -> None:
    """Write the picture of the report's best plan, in the format of the path's suffix.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    try:
        import matplotlib
        import matplotlib.pyplot as plt
    except ImportError:
        raise UnavailableError("a picture needs matplotlib: install regroup[plots]") from None
    matplotlib.use("Agg")
    best = report.plans[0]
    figure, axes = plt.subplots(3, 1, figsize=(9, 9), layout="constrained")
    _memory(axes[0], best)
    _time(axes[1], report)
    _pipeline(axes[2], best)
    figure.suptitle(f"{report.question}\n{best.layout}, {best.sharding}: {best.step_s:.3g} s per step", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _memory(axis: Any, plan: Plan) -> None:
    stages = range(len(plan.memory))
    below = [0.0 for _ in stages]
    for name in (name for name in plan.memory[0] if name != "total"):
        sizes = [stage[name] / _GIGA for stage in plan.memory]
        axis.bar(stages, sizes, bottom=below, label=name, width=0.7)
        below = [low + size for low, size in zip(below, sizes, strict=True)]
    axis.axhline(plan.capacity_bytes / _GIGA, color="black", linestyle="--", linewidth=0.8)
    axis.annotate("capacity", (0, plan.capacity_bytes / _GIGA), xytext=(0, -9), textcoords="offset points", fontsize=8)
    axis.set_xticks(list(stages) if len(plan.memory) <= 16 else [])
    axis.set_xlabel("pipeline stage")
    axis.set_ylabel("GB per device")
    axis.legend(frameon=False, fontsize=7, ncols=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _time(axis: Any, report: PlanReport) -> None:
    left = [0.0 for _ in report.plans]
    rows = range(len(report.plans))
    for name in report.plans[0].time:
        sizes = [plan.time[name] for plan in report.plans]
        if max(sizes) > _LEAST_SHARE * report.plans[0].step_s:
            axis.barh(rows, sizes, left=left, label=name.removesuffix("_s"), height=0.7)
        else:
            axis.barh(rows, sizes, left=left, color="#b8b8b8", height=0.7)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    axis.set_yticks(list(rows), [f"{plan.layout}\n{plan.sharding}, {plan.schedule}" for plan in report.plans])
    axis.tick_params(axis="y", labelsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("step time, seconds")
    axis.legend(frameon=False, fontsize=7, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _pipeline(axis: Any, plan: Plan) -> None:
    count = min(plan.micro_batches, _MAX_MICRO_BATCHES)
    drawn = "gpipe" if plan.schedule == "gpipe" else "1f1b"
    for slot in timeline(plan.layout.pp, count, drawn, 1.0, 2.0):
        color = "#1b7f5c" if slot.kind == "forward" else "#6fb59b"
        axis.barh(slot.stage, slot.end_s - slot.start_s, left=slot.start_s, color=color, edgecolor="white", height=0.85)
    axis.invert_yaxis()
    axis.set_ylabel("stage")
    axis.set_xlabel("time, in forward passes of a micro-batch; dark: forward, light: backward")
    shown = "" if count == plan.micro_batches else f"; the first {count} of {plan.micro_batches} micro-batches"
    note = "" if drawn == plan.schedule or plan.layout.pp == 1 else f", drawn as {drawn}"
    axis.set_title(f"{plan.schedule}{note}{shown}; bubble {100 * plan.bubble:.1f} % of the step", fontsize=9)
