"""The command budget: the device-hours or the money that a job may use."""

from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.options import AsJson, Job, Project, Server

if TYPE_CHECKING:
    from regroup.api.schemas.jobs import Job as JobModel

DeviceHours = Annotated[
    float | None, typer.Option("--device-hours", metavar="N", help="Hours of devices, multiplied by their number.")
]
Cost = Annotated[
    float | None, typer.Option("--cost", metavar="N", help="Cost, in the currency of the server's price table.")
]


def budget(
    job: Job,
    device_hours: DeviceHours = None,
    cost: Cost = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Set the budget of a job: either device-hours or cost. A job that was suspended at its budget queues again."""
    run_action(
        server,
        lambda client: client.set_budget(job, device_hours=device_hours, cost=cost, project=project),
        _describe_budget,
        as_json=as_json,
    )


def _describe_budget(job: "JobModel") -> str:
    found = job.intents.get("budget") or {}
    amounts = ", ".join(f"{value:g} {name.replace('device_hours', 'device-hours')}" for name, value in found.items())
    again = "; it queues again if this is enough" if job.state == "SUSPENDED" else ""
    return f"{job.name} ({job.state}) has a budget of {amounts}{again}"
