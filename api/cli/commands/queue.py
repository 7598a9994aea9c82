"""The commands queue and what-if: who waits, and what a change would do to the waits."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table

if TYPE_CHECKING:
    from regroup.api.schemas.capacity.what_if import JobForecast

Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only jobs of this project.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Maximum number of jobs.")]
AddNodes = Annotated[int, typer.Option("--add-nodes", metavar="N", min=0, max=4096, help="Number of nodes to add.")]
Like = Annotated[
    str | None, typer.Option("--like", metavar="NODE", help="Node that the added ones equal.  [default: most common]")
]
Drain = Annotated[
    list[str], typer.Option("--drain", metavar="NODE", help="Node or domain (rack:r1) that leaves. Repeatable.")
]
Quota = Annotated[
    list[str],
    typer.Option("--quota", metavar="PROJECT.FIELD=N", help="guaranteed, limit or weight of a project. Repeatable."),
]
Cancel = Annotated[list[str], typer.Option("--cancel", metavar="JOB", help="Id of a job that ends now. Repeatable.")]
AddJob = Annotated[
    list[str],
    typer.Option("--add-job", metavar="FIELDS", help="A job: name=x,ranks=8,duration_s=3600[,project=…]. Repeatable."),
]
Assumed = Annotated[
    str, typer.Option("--assumed", metavar="TIME", help="Remaining time of jobs about which nothing is known.")
]
Horizon = Annotated[str, typer.Option("--horizon", metavar="TIME", help="Simulated time, 30d at most.")]


def queue(project: Project = None, limit: Limit = 200, server: Server = None, as_json: AsJson = False) -> None:
    """List the queued jobs in scheduling order: why each waits, and its predicted start."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.queue(project=project, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            "-" if job.position is None else str(job.position + 1), job.id, job.name, job.project, job.priority,
            "-" if job.ranks is None else str(job.ranks), _clock(job.estimated_start_s), job.message or "-",
        )
        for job in found.jobs
    ]  # fmt: skip
    print_table(("PLACE", "ID", "NAME", "PROJECT", "PRIORITY", "RANKS", "STARTS", "WAITS BECAUSE"), rows)
    if found.total > len(found.jobs):
        print_message(f"{found.total - len(found.jobs)} more jobs wait; --limit shows more")


def what_if(
    add_nodes: AddNodes = 0,
    like: Like = None,
    drain: Drain = [],  # noqa: B006
    quota: Quota = [],  # noqa: B006
    cancel: Cancel = [],  # noqa: B006
    add_job: AddJob = [],  # noqa: B006
    assumed: Assumed = "1h",
    horizon: Horizon = "7d",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the queue of now with other nodes, quotas or jobs, and compare the waits. Changes nothing."""
    from regroup.api.cli.common.connection import connect
    from regroup.service.spec.types import parse_seconds

    scenario: dict[str, Any] = {
        "drain": drain,
        "quotas": _quotas(quota),
        "cancel": cancel,
        "add_jobs": [_job(each) for each in add_job],
        "assumed_s": parse_seconds(assumed),
        "horizon_s": parse_seconds(horizon),
    }
    if add_nodes:
        scenario["add_nodes"] = {"count": add_nodes, **({} if like is None else {"like": like})}
    with connect(server) as client:
        found = client.what_if(scenario)
    if as_json:
        print_json(found)
        return
    print(found.summary)
    _print_jobs([job for job in found.jobs if not job.is_running or job.is_cancelled])
    assumed_jobs = sum(job.basis == "assumed" for job in found.jobs)
    if assumed_jobs:
        print_message(f"the remaining time of {assumed_jobs} jobs is not known; {assumed} is assumed (--assumed)")


def _print_jobs(jobs: "Sequence[JobForecast]") -> None:
    rows = [
        (
            job.id, job.name, job.project, str(job.ranks), _clock(job.start_before_s), _clock(job.start_after_s),
            "added" if job.is_added else "cancelled" if job.is_cancelled else job.basis,
        )
        for job in jobs
    ]  # fmt: skip
    print_table(("ID", "NAME", "PROJECT", "RANKS", "STARTS", "WITH CHANGE", "BASIS"), rows)


def _quotas(texts: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        path, _, value = text.partition("=")
        project, _, field = path.rpartition(".")
        try:
            if not project:
                raise ValueError(text)
            found.setdefault(project, {})[field] = float(value) if field == "weight" else int(value)
        except ValueError:
            raise typer.BadParameter(f"--quota {text}: expected for example vision.limit=16") from None
    return found


def _job(text: str) -> dict[str, str | float | int]:
    fields: dict[str, str | float | int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            fields[name] = int(value) if name == "ranks" else float(value) if name == "duration_s" else value
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"--add-job {text}: expected for example name=x,ranks=8,duration_s=3600")
    return fields


def _clock(time_s: float | None) -> str:
    return "-" if time_s is None else time.strftime("%m-%d %H:%M", time.localtime(time_s))
