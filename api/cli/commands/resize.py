"""The commands resize and sizes."""

from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regroup.api.client.client import Client
    from regroup.api.schemas.jobs import Job as JobModel
    from regroup.api.schemas.resize import JobSize
    from regroup.service.domain.layout import Layout

DP = Annotated[
    int | None, typer.Option("--dp", metavar="N", min=1, help="Data-parallel degree, within the range of the spec.")
]
Ranks = Annotated[
    int | None,
    typer.Option("--ranks", metavar="N", min=1, help="Number of ranks instead; the planner chooses the degrees."),
]
TP = Annotated[
    int | None, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel degree.  [default: unchanged]")
]
PP = Annotated[
    int | None, typer.Option("--pp", metavar="N", min=1, help="Pipeline-parallel degree.  [default: unchanged]")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the resize; exit 0 only if it succeeded.")]


def resize(
    job: Job,
    dp: DP = None,
    tp: TP = None,
    pp: PP = None,
    ranks: Ranks = None,
    wait: Wait = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Resize a running or queued job. It continues from its current step: no step is lost."""
    from regroup.api.client.operations.job_control import requested_layout
    from regroup.api.live.formatting import size_text
    from regroup.service.domain.errors import RegroupError

    requested: list[JobModel] = []

    def call(client: "Client") -> "JobModel":
        requested.append(client.resize(job, dp, tp=tp, pp=pp, ranks=ranks, project=project))
        return requested[0]

    def wait_for_resize(client: "Client", pending: "JobModel") -> "JobModel":
        client.wait_for_resize(pending.id)
        return client.get(pending.id)

    def describe(found: "JobModel") -> str:
        def size(layout: "Layout | None") -> str:
            return "the queue" if layout is None else size_text(layout.to_json(), found.workload_kind)

        before, target = requested[0].layout, requested_layout(requested[0])
        if target is None:
            return f"{found.name} already has this size: {size(found.layout)}"
        if not wait:
            return f"resizing {found.name} from {size(before)} to {size(target)} when the capacity is available"
        return f"{found.name} runs at {size(found.layout)}"

    found = run_action(
        server,
        call,
        describe,
        as_json=as_json,
        wait=wait_for_resize if wait else None,
        describe_interrupt=lambda pending: f"{pending.name} will still be resized: `regroup why {pending.id}` shows it",
    )
    target = requested_layout(requested[0])
    if wait and target is not None and found.layout != target:
        raise RegroupError(f"job {found.name} was not resized to {target}: see `regroup why {found.name}`")


def sizes(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """List the sizes that a job can have, with their expected speed, and the gap of a resize."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.job_sizes(job, project=project)
    if as_json:
        print_json(found)
        return
    print_sizes(found.sizes, found.current)
    print(f"a resize takes about {found.gap.seconds:.3g} s without steps ({found.gap.basis})")
    if found.why_not:
        print(f"no predictions: {found.why_not}")


def print_sizes(sizes: "Sequence[JobSize]", current: "Layout | None" = None) -> None:
    """Print sizes as a table, with a mark at the present one."""
    from regroup.service.domain.byte_text import bytes_text

    rows = [
        (
            f"{each.ranks}{' *' if each.layout == current else ''}", str(each.layout),
            "-" if each.expected_step_s is None else f"{each.expected_step_s:.3g} s",
            "-" if each.prediction is None else bytes_text(each.prediction.peak_bytes), each.basis,
        )
        for each in sizes
    ]  # fmt: skip
    print_table(("RANKS", "LAYOUT", "STEP", "MEMORY", "BASIS"), rows)
