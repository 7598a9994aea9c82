"""The verb plan: which layout suits a model on a cluster, before it runs."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table, say
from regroup.api.live.formatting import duration, number

if TYPE_CHECKING:
    from regroup.api.schemas.plans import Plan, PlanReport

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="A published model, e.g. llama3-70b; or a YAML file with its sizes.")
]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="What computes, e.g. A100, H100 or cpu.")]
Gpus = Annotated[int, typer.Option("--gpus", metavar="N", help="How many of them; all are used.")]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Samples of a step, over all of them.")]
Sequence = Annotated[int, typer.Option("--sequence", metavar="N", help="Tokens of a sample.")]
Precision = Annotated[str, typer.Option("--precision", metavar="KIND", help="fp32, bf16, fp16, fp8 or fp4.")]
PerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", metavar="N", help="That one link joins; else as usual for the device.")
]
Network = Annotated[
    float | None,
    typer.Option("--network", metavar="GB/S", help="One way out of a node; else as usual for the device."),
]
Price = Annotated[float | None, typer.Option("--price", metavar="X", help="Of a device for an hour, to show cost.")]
Keep = Annotated[int, typer.Option("--keep", metavar="N", help="How many of the best are shown.")]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", metavar="PNG", help="Draw memory, time and pipeline of the best; needs matplotlib."),
]
Page = Annotated[Path | None, typer.Option("--markdown", metavar="MD", help="Write the whole report as a page.")]


def plan(
    model: ModelName,
    device: Device,
    gpus: Gpus,
    batch: Batch,
    sequence: Sequence = 2048,
    precision: Precision = "bf16",
    gpus_per_node: PerNode = None,
    network: Network = None,
    price: Price = None,
    keep: Keep = 5,
    picture: Picture = None,
    page: Page = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Find the fastest layouts of a model: predicted time and memory, and why others lose. Nothing is run."""
    question: dict[str, Any] = {
        "model": _model(model),
        "device": device,
        "gpus": gpus,
        "global_batch": batch,
        "sequence": sequence,
        "precision": precision,
        "gpus_per_node": gpus_per_node,
        "network_gb_s": network,
        "price_per_gpu_hour": price,
        "keep": keep,
    }
    report = _ask({name: value for name, value in question.items() if value is not None}, server)
    if page:
        page.write_text(report.markdown)
    if picture:
        from regroup.api.cli.render.plan_figure import draw

        draw(report, picture)
    if as_json:
        print_json(report)
        return
    print_report(report)
    for written in (page, picture):
        if written:
            say(f"wrote {written}")


def _model(text: str) -> object:
    path = Path(text)
    if path.suffix not in (".yaml", ".yml", ".json"):
        return text
    from regroup.api.cli.spec_input.spec_file import read_spec

    return read_spec(path)


def _ask(question: dict[str, Any], server: str | None) -> "PlanReport":
    """Of the server named; without one, of this version's own planner: it needs none."""
    from pydantic import ValidationError

    from regroup.api.client.discovery import connect
    from regroup.api.schemas.plans import PlanReport
    from regroup.service.domain.errors import FieldIssue, SpecError
    from regroup.service.operations.plans import PlanRequest
    from regroup.service.operations.plans import plan as answer

    if server:
        with connect(server) as client:
            return client.plan(**question)
    try:
        request = PlanRequest.model_validate(question)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        raise SpecError(
            [FieldIssue(".".join(map(str, each["loc"])), each["msg"], each.get("input")) for each in wrong]
        ) from None
    return PlanReport.model_validate(answer(request))


def print_report(report: "PlanReport") -> None:
    """The best plans as a table, why others lost, and the sizes of the best."""
    print(report.question)
    print()
    print_table(
        ("LAYOUT", "DATA", "MICRO", "CHECKPOINTING", "SCHEDULE", "STEP", "TOKENS/S", "MFU", "MEMORY", "WHY"),
        [_row(each) for each in report.plans],
    )
    print()
    print_table(("OTHER KINDS", "LAYOUT", "WHY NOT"), [(each.kind, str(each.layout), each.why) for each in report.lost])
    print()
    rungs = ", ".join(f"{rung.gpus} ({number(rung.tokens_s)} tokens/s)" for rung in report.ladder)
    runnable = next((each for each in report.plans if not each.obstacles), None)
    if runnable is None:
        print(f"no job can run any of these yet: {report.plans[0].obstacles[0]}")
    else:
        which = "the best" if runnable is report.plans[0] else "the best that a job can run"
        print(f"{which}, in a job spec: {json.dumps(runnable.spec)}")
    print(f"the best runs on so many devices too: {rungs}")
    if report.figures:
        at = datetime.fromtimestamp(report.figures[0].time_s, UTC)
        names = ", ".join(each.name for each in report.figures)
        print(f"measured {at:%Y-%m-%d %H:%M} UTC by {report.figures[0].job_id}, not from the table: {names}")
    best = report.plans[0]
    if best.cost_per_billion_tokens is not None:
        print(f"cost of 10⁹ tokens: {best.cost_per_billion_tokens:,.0f}, at a goodput of {100 * best.goodput:.2f} %")


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
