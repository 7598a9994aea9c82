"""Plans as text: the layouts that the planner found, and the plan of a job."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from regroup.api.cli.common.output import print_table
from regroup.api.live.formatting import duration, number
from regroup.api.live.predictions import FIGURES, format_cells

if TYPE_CHECKING:
    from regroup.api.schemas.job_plan import JobPlan
    from regroup.api.schemas.plans import Plan, PlanReport


def print_report(report: "PlanReport") -> None:
    """Print the best plans as a table, the reasons against other kinds, and the sizes of the best plan."""
    print(report.question)
    print()
    print_table(
        ("LAYOUT", "DATA", "MICRO", "CHECKPOINTING", "SCHEDULE", "STEP", "TOKENS/S", "MFU", "MEMORY", "WHY"),
        [_row(each) for each in report.plans],
    )
    print()
    print_table(
        ("REJECTED KINDS", "LAYOUT", "WHY NOT"), [(each.kind, str(each.layout), each.why) for each in report.lost]
    )
    print()
    sizes = ", ".join(f"{size.gpus} ({number(size.tokens_s)} tokens/s)" for size in report.ladder)
    runnable = next((each for each in report.plans if not each.obstacles), None)
    if runnable is None:
        print(f"no job can run any of these plans yet: {report.plans[0].obstacles[0]}")
    else:
        which = "the best plan" if runnable is report.plans[0] else "the best plan that a job can run"
        print(f"{which} in a job spec: {json.dumps(runnable.spec)}")
    print(f"the best plan also runs on these numbers of devices: {sizes}")
    if report.measured_values:
        at = datetime.fromtimestamp(report.measured_values[0].time_s, UTC)
        names = ", ".join(each.name for each in report.measured_values)
        print(f"measured values ({at:%Y-%m-%d %H:%M} UTC by {report.measured_values[0].job_id}): {names}")
    best = report.plans[0]
    if best.cost_per_billion_tokens is not None:
        print(f"cost per 10⁹ tokens: {best.cost_per_billion_tokens:,.0f}, at a goodput of {100 * best.goodput:.2f} %")


def _row(plan: "Plan") -> tuple[str, ...]:
    return (
        str(plan.layout),
        plan.sharding,
        str(plan.micro_batch),
        plan.checkpointing,
        plan.schedule if plan.layout.pp > 1 else "-",
        duration(plan.step_s),
        number(plan.tokens_s),
        f"{100 * plan.mfu:.1f} %",
        f"{plan.peak_bytes / 1e9:.1f} of {plan.capacity_bytes / 1e9:.0f} GB",
        plan.why,
    )


def print_job_plan(found: "JobPlan") -> None:
    """Print the planner's choice for a job, and its predictions next to the measured values."""
    if found.report is None:
        print("the spec sets the layout: the planner chose nothing")
    else:
        fixed = f", with {', '.join(found.given)} from the spec" if found.given else ""
        print(f"chosen at submission, for {_requested(found.requested or {})}{fixed}")
        print_report(found.report)
    print()
    _print_trials(found)
    if not found.generations:
        print(f"no prediction: {found.why_not}" if found.why_not else "no prediction yet")
        return
    header = ("GENERATION", "RANKS", "DEVICE", *(name.upper() for name in FIGURES.values()))
    rows = [
        (str(each.generation), str(each.ranks), each.device, *format_cells(each.model_dump()))
        for each in found.generations
    ]
    print_table(header, rows)
    if any(each.probe_job_id is None for each in found.generations):
        print("estimated: from the hardware table, not from measurements; `regroup probe` measures this cluster")
    if found.why_not:
        print(f"no prediction for the newest generation: {found.why_not}")


def _print_trials(plan: "JobPlan") -> None:
    if not plan.trials:
        return
    rows = [
        (str(each.layout), _seconds(each.predicted_s), _seconds(each.measured_s) if each.measured_s else each.why)
        for each in plan.trials
    ]
    print_table(("TRIED", "PREDICTED", "MEASURED"), rows)
    if plan.kept_why:
        print(f"{'chosen: ' + str(plan.kept) if plan.kept else 'stopped'}: {plan.kept_why}")
    print()


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} s"


def _requested(requested: Mapping[str, Any]) -> str:
    ranks = requested.get("ranks")
    if not isinstance(ranks, dict):
        return "all ranks of the cluster"
    if ranks["min"] == ranks["max"]:
        return f"{ranks['target']} ranks"
    return f"{ranks['target']} ranks, {ranks['min']} to {ranks['max']}"
