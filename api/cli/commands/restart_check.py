"""`regroup run --check`: follow the job that checks a restart, and print its verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.interrupt import continuing
from regroup.api.cli.common.output import exit_with, print_json

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.live.output import OutputSource
    from regroup.api.schemas.jobs import Job as JobModel


def follow_check(
    client: "Client", job: "JobModel", *, as_json: bool, sources: "Sequence[OutputSource] | None" = None
) -> None:
    """Show the job of a check until it ends, then its verdict; exit 0 only if the restart changed nothing.

    Args:
        client: Client of the job's server.
        job: The job that makes the check.
        as_json: Print only the verdict.
        sources: Output of ranks that is shown too; None if standard output shows the progress of the job instead.
    """
    from regroup.api.cli.commands.watch import first_view
    from regroup.api.cli.render.restart_verdict import render_verdict
    from regroup.api.client.discovery import feed
    from regroup.api.client.restart_check import verdict_of
    from regroup.api.live.display import display
    from regroup.api.live.follow import follow

    with continuing(job):
        if not as_json:
            with display(output=sources is not None) as out:
                follow(feed(client, job.id), first_view(job), out, sources or ())
        verdict = verdict_of(client.wait(job.id))
    if as_json:
        print_json(verdict)
    else:
        print("\n".join(render_verdict(verdict, job.workload_kind)))
    if not verdict.is_equal:
        exit_with(exit_codes.JOB_NOT_SUCCEEDED)
