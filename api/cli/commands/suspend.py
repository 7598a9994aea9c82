"""Verbs for a job that is to hold nothing for a while: suspend, resume."""

from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import print_json

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="For people: shown with the job.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it holds nothing; exit 0 only if that came about.")]


def suspend(
    job: Job, reason: Why = "on request", wait: Wait = False, server: Server = None, as_json: AsJson = False
) -> None:
    """Have a job save its next step and hold nothing until it is resumed: no step is lost."""
    from regroup.api.client.discovery import connect
    from regroup.service.domain.errors import RegroupError

    with connect(server, patient=wait) as client:
        told = client.suspend(job, reason=reason)
        if wait:
            told = client.wait_for_suspend(told.id)
            if told.state != "SUSPENDED":
                raise RegroupError(f"job {told.name} is {told.state} and not suspended: see `regroup why {told.name}`")
    if as_json:
        print_json(told)
    elif told.state == "SUSPENDED":
        print(f"{told.name} is suspended at step {told.step}; `regroup resume {told.name}` has it go on")
    else:
        print(f"{told.name} is {told.state}; it saves its next step and then holds nothing")


def resume(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Have a suspended job queue again, to go on from its newest checkpoint."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        told = client.resume(job)
    if as_json:
        print_json(told)
    else:
        print(f"{told.name} is {told.state} at step {told.step}")
