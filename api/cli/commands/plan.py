"""The command plan: find layouts for a model on a cluster before it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.completion import complete_job
from regroup.api.cli.common.options import AsJson, Project, Server
from regroup.api.cli.common.output import print_json, print_message

if TYPE_CHECKING:
    from regroup.api.schemas.plans import PlanReport

ModelName = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="Name of a published model, e.g. llama3-70b, or a YAML file with its sizes."),
]
JobReference = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="JOB",
        autocompletion=complete_job,
        help="Show the plan of a submitted job instead: its id or its name.",
    ),
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="Device type, e.g. A100, H100 or cpu.")]
Gpus = Annotated[int | None, typer.Option("--gpus", metavar="N", help="Number of devices. The plan uses all of them.")]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Global batch: samples per step.")]
Sequence = Annotated[int, typer.Option("--sequence", metavar="N", help="Sequence length: tokens per sample.")]
Precision = Annotated[str, typer.Option("--precision", metavar="KIND", help="fp32, bf16, fp16, fp8 or fp4.")]
PerNode = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="N",
        help="GPUs per node (fast-interconnect domain).  [default: usual for the device]",
    ),
]
Network = Annotated[
    float | None,
    typer.Option(
        "--network", metavar="GB/S", help="Bandwidth between nodes, per node.  [default: usual for the device]"
    ),
]
Price = Annotated[
    float | None, typer.Option("--price", metavar="X", help="Price per device-hour; adds the cost to the report.")
]
Top = Annotated[int, typer.Option("--top", metavar="N", help="Number of plans to show, fastest first.")]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--picture", metavar="PNG", help="Draw memory, step time and pipeline of the fastest plan (needs matplotlib)."
    ),
]
Page = Annotated[
    Path | None, typer.Option("--markdown", metavar="MD", help="Write the complete report as a Markdown page.")
]


def plan(
    model: ModelName = None,
    device: Device = None,
    gpus: Gpus = None,
    batch: Batch = None,
    job: JobReference = None,
    sequence: Sequence = 2048,
    precision: Precision = "bf16",
    gpus_per_node: PerNode = None,
    network: Network = None,
    price: Price = None,
    top: Top = 5,
    picture: Picture = None,
    page: Page = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Find the fastest layouts for a model, with predicted step time and memory. Runs nothing.

    With --job: show the plan of a submitted job, and its predictions next to the measured values.
    """
    given = {"MODEL": model, "--device": device, "--gpus": gpus, "--batch": batch}
    if job is not None:
        if conflicting := [name for name, value in given.items() if value is not None]:
            raise typer.BadParameter(f"--job shows the plan of a submitted job: leave out {', '.join(conflicting)}")
        _show_job_plan(job, project, server, as_json=as_json)
        return
    missing = [name for name, value in given.items() if value is None]
    if model is None or missing:
        raise typer.BadParameter(f"missing {', '.join(missing)}; give these, or --job to show the plan of a job")
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
        "top": top,
    }
    report = _request_plan({name: value for name, value in question.items() if value is not None}, server)
    if page:
        page.write_text(report.markdown)
    if picture:
        from regroup.api.cli.render.plan_figure import draw

        draw(report, picture)
    if as_json:
        print_json(report)
        return
    from regroup.api.cli.render.plan_report import print_report

    print_report(report)
    for written in (page, picture):
        if written:
            print_message(f"wrote {written}")


def _show_job_plan(job: str, project: str, server: str | None, *, as_json: bool) -> None:
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.plan_report import print_job_plan

    with connect(server) as client:
        found = client.job_plan(job, project=project)
    if as_json:
        print_json(found)
    else:
        print_job_plan(found)


def _model(text: str) -> object:
    path = Path(text)
    if path.suffix not in (".yaml", ".yml", ".json"):
        return text
    from regroup.api.cli.spec_input.spec_file import read_spec

    return read_spec(path)


def _request_plan(question: dict[str, Any], server: str | None) -> "PlanReport":
    """Return the plan of the given server, or of this version's own planner if no server is given."""
    from pydantic import ValidationError

    from regroup.api.cli.common.connection import connect
    from regroup.api.schemas.plans import PlanReport
    from regroup.service.domain.errors import SpecError
    from regroup.service.operations.plans import PlanRequest
    from regroup.service.operations.plans import plan as answer
    from regroup.service.spec.issues import find_issues

    if server:
        with connect(server) as client:
            return client.plan(**question)
    try:
        request = PlanRequest.model_validate(question)
    except ValidationError as error:
        raise SpecError(find_issues(error, question)) from None
    return PlanReport.model_validate(answer(request))
