"""Commands that can follow a job: watch and logs."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import exit_with, print_json, print_json_lines, print_message

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.live.job_view import JobView
    from regroup.api.schemas.jobs import Job as JobModel

Rank = Annotated[int, typer.Option("--rank", metavar="N", help="Rank whose log is printed.")]
Generation = Annotated[
    int | None, typer.Option("--generation", metavar="N", help="Generation of the rank.  [default: the newest]")
]
Stream = Annotated[str, typer.Option("--stream", metavar="NAME", help="stdout or stderr.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")]


def watch(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Show a job live: progress, loss, nodes and ranks, incidents. Without a terminal: one line per event."""
    from regroup.api.client.discovery import connect

    with connect(server, patient=True) as client:
        watch_to_the_end(client, client.get(job), as_json=as_json)


def watch_to_the_end(client: "Client", job: "JobModel", *, as_json: bool) -> None:
    """Show `job` until it ends; exit 0 only if it SUCCEEDED. With `as_json`, print only the final job."""
    from regroup.api.client.discovery import feed
    from regroup.api.live.follow import display, follow

    if as_json:
        job = client.wait(job.id)
        print_json(job)
        state = str(job.state)
    else:
        with display() as out:
            view = follow(feed(client, job.id), first_view(job), out)
        state = view.state
        print_message(f"{job.id} {state}" + ("" if state == "SUCCEEDED" else f"; regroup why {job.id}"))
    if state != "SUCCEEDED":
        exit_with(exit_codes.JOB_NOT_SUCCEEDED)


def first_view(job: "JobModel") -> "JobView":
    """Return the view of a job before its first event."""
    from regroup.api.live.job_view import JobView

    return JobView(job.id, job.name, job.steps)


def logs(
    job: Job,
    rank: Rank = 0,
    generation: Generation = None,
    stream: Stream = "stdout",
    follow: Follow = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Print the output of a rank."""
    from regroup.api.client.discovery import connect

    with connect(server, patient=follow) as client:
        for text in client.logs(job, rank=rank, generation=generation, stream=stream, follow=follow):
            if as_json:
                print_json_lines([{"rank": rank, "stream": stream, "text": text}])
            else:
                sys.stdout.write(text)
                sys.stdout.flush()
