"""Commands that show metrics and specs of one job or of several: curves, diff."""

from typing import Annotated

import typer

from regroup.api.cli.common.completion import complete_job
from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import print_json, print_table

Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...", autocompletion=complete_job, help="Ids or names of jobs. A name means its newest job."
    ),
]
Other = Annotated[str, typer.Argument(metavar="OTHER", autocompletion=complete_job, help="The job to compare with.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Metric, such as loss; repeatable. Default: several."),
]
Points = Annotated[
    int, typer.Option("--points", metavar="N", min=2, max=2000, help="Largest number of points. Several jobs: 100.")
]
FromStep = Annotated[int | None, typer.Option("--from", metavar="STEP", min=1, help="First step. Only for one job.")]
ToStep = Annotated[int | None, typer.Option("--to", metavar="STEP", min=1, help="Last step. Only for one job.")]
_MOST_POINTS = 100
"""Largest number of points of one of several jobs."""


def curves(
    jobs: Jobs,
    metric: Metrics = None,
    points: Points = 20,
    from_step: FromStep = None,
    to_step: ToStep = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show metrics in few points: one job as a table of means, several jobs with a line each.

    With --json, one job also has ranges and repeated steps.
    """
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.curves import render_curves, render_short_curves

    with connect(server) as client:
        if len(jobs) > 1:
            if from_step is not None or to_step is not None:
                raise typer.BadParameter("--from and --to need exactly one job")
            of_jobs = client.curves_of_jobs(
                jobs, metrics=metric or (), points=min(points, _MOST_POINTS), project=project
            )
            print_json(of_jobs) if as_json else print_table(*render_short_curves(of_jobs))
            return
        found = client.curves(
            jobs[0], metrics=metric or (), points=points, from_step=from_step or 1, to_step=to_step, project=project
        )
    if as_json:
        print_json(found)
        return
    print_table(*render_curves(found))
    if found.steps_per_point > 1:
        print(f"\neach line is the mean of up to {found.steps_per_point} steps; --points N shows more")


def diff(job: Job, other: Other, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Show the fields in which the specs of two jobs differ."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.differences import render_differences

    with connect(server) as client:
        found = client.diff(job, other, project=project)
    if as_json:
        print_json(found)
    elif found.differences:
        print_table(*render_differences(found, job, other))
    else:
        print("the specs are equal")
