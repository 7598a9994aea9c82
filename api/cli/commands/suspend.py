"""The commands suspend and resume."""

from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.options import AsJson, Job, Project, Server

if TYPE_CHECKING:
    from regroup.api.schemas.jobs import Job as JobModel

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Text for people, shown with the job.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the job has released its nodes; exit 0 only if it is suspended.")
]


def suspend(
    job: Job,
    reason: Reason = "on request",
    wait: Wait = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Suspend a job: it saves its next step and releases its nodes. A script saves its own state, on SIGTERM."""
    from regroup.service.domain.errors import RegroupError

    found = run_action(
        server,
        lambda client: client.suspend(job, reason=reason, project=project),
        _describe_suspend,
        as_json=as_json,
        wait=(lambda client, requested: client.wait_for_suspend(requested.id)) if wait else None,
        describe_interrupt=lambda requested: (
            f"{requested.name} will still be suspended: `regroup resume {requested.id}` queues it again"
        ),
    )
    if wait and found.state != "SUSPENDED":
        raise RegroupError(f"job {found.name} is {found.state}, not SUSPENDED: see `regroup why {found.name}`")


def resume(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Queue a suspended job again. It continues from its newest checkpoint."""
    run_action(
        server,
        lambda client: client.resume(job, project=project),
        lambda found: f"{found.name} is {found.state} at step {found.step}",
        as_json=as_json,
    )


def _describe_suspend(job: "JobModel") -> str:
    if job.state == "SUSPENDED":
        return f"{job.name} is suspended at step {job.step}; `regroup resume {job.name}` queues it again"
    if job.spec is not None and job.spec.workload.kind in ("script", "ray_train"):
        grace_s = job.spec.termination_grace
        return (
            f"suspending {job.name} ({job.state}): its ranks get SIGTERM and have {grace_s:.0f} s to save their state, "
            "then it releases its nodes"
        )
    return f"suspending {job.name} ({job.state}): it saves its next step, then releases its nodes"
