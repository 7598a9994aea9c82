"""Read-only commands: jobs, get, why, stacks, steps, events, ledger."""

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.completion import complete_project, complete_state
from regroup.api.cli.common.labels import parse_labels
from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import fit_to_terminal, print_json, print_json_lines, print_table, to_json

if TYPE_CHECKING:
    from regroup.api.schemas.jobs import JobSummary

State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        autocompletion=complete_state,
        help="Only jobs in this state, e.g. RUNNING; upper or lower case.",
    ),
]
Author = Annotated[
    str | None,
    typer.Option("--author", metavar="NAME", help="Only jobs that this identity submitted; `me` for your own."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name.")]
Label = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only jobs with this label; repeatable.")
]
Id = Annotated[list[str] | None, typer.Option("--id", metavar="JOB", help="Only the job with this id; repeatable.")]
OnlyProject = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", autocompletion=complete_project, help="Only jobs of this project."),
]
Sizes = Annotated[
    bool, typer.Option("--sizes", help="List the sizes with which a queued job would start now or sooner.")
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Largest number of jobs to list.")]
StackRank = Annotated[int | None, typer.Option("--rank", "-r", metavar="N", min=0, help="Only this rank.")]
After = Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only entries with a higher number.")]
AfterStep = Annotated[
    int | None, typer.Option("--after", metavar="N", min=0, help="Print every step with a higher number.")
]
Last = Annotated[int | None, typer.Option("--last", "-n", metavar="N", min=1, help="Print each of the last N steps.")]
All = Annotated[bool, typer.Option("--all", help="Print every step.")]


def jobs(
    state: State = None,
    name: Name = None,
    author: Author = None,
    project: OnlyProject = None,
    label: Label = None,
    id: Id = None,
    limit: Limit = 50,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.live.formatting import ago

    states = [_state(state)] if state else []
    with connect(server) as client:
        labels, ids = parse_labels(label or ()), id or ()
        found = client.jobs(state=states, name=name, author=author, project=project, labels=labels, ids=ids)
        newest = list(islice(found, limit))
    if as_json:
        print_json(newest)
        return
    now = time.time()
    rows = [
        (
            job.id,
            job.name,
            str(job.state),
            _progress(job),
            _loss(job.loss),
            ago(job.created_at, now),
            job.author or "-",
            job.reason,
        )
        for job in newest
    ]
    print_table(("JOB", "NAME", "STATE", "STEP", "LOSS", "CREATED", "AUTHOR", "REASON"), rows)


def get(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Show one job."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.job import render_job

    with connect(server) as client:
        found = client.get(job, project=project)
    if as_json:
        print_json(found)
    else:
        print_table(("FIELD", "VALUE"), render_job(to_json(found)))


def why(
    job: Job, sizes: Sizes = False, project: Project = "default", server: Server = None, as_json: AsJson = False
) -> None:
    """Explain a job that is pending, failed or slow."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.why import render_starts, render_why

    with connect(server) as client:
        if sizes:
            starts = client.job_starts(job, project=project)
            if as_json:
                print_json(starts)
            else:
                print_table(("RANKS", "SPEC", "START", "CONFIDENCE", "BASIS"), render_starts(starts, time.time()))
            return
        answer = client.why(job, project=project)
    if as_json:
        print_json(answer)
    else:
        print("\n".join(render_why(to_json(answer))))


def stacks(
    job: Job, rank: StackRank = None, project: Project = "default", server: Server = None, as_json: AsJson = False
) -> None:
    """Show the stack of every thread of a job's ranks now, even if a rank hangs."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = [item for item in client.stacks(job, project=project) if rank is None or item.rank == rank]
    if as_json:
        print_json_lines(found)
        return
    for item in found:
        place = "" if item.phase is None else f", {item.phase} of step {item.step}"
        print(f"rank {item.rank} on {item.node} (process {item.pid}){place}\n{item.text.rstrip()}\n")


def steps(
    job: Job,
    after: AfterStep = None,
    last: Last = None,
    everything: All = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Summarize a job's steps: loss, held-out loss, tokens, time. With --json: one line per step, all of them.

    Without --after, --last and --all: figures of the whole job, and at most 20 steps from its first to its last.
    """
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.steps import HEADER, NEWEST, sampled_steps, step_row, summarize_steps

    with connect(server) as client:
        found = client.get(job, project=project)
        start = after or 0
        if last is not None:
            start = max(start, found.step - last)
        if as_json or everything or after is not None or last is not None:
            rows = client.steps(found.id, after=start)
            if as_json:
                print_json_lines(rows)
            else:
                print_table(HEADER, [step_row(row) for row in rows])
            return
        newest = client.step_page(found.id, after=max(0, found.step - NEWEST), limit=NEWEST)
        row_by_step = {row.step: row for row in newest}
        shown: list[Any] = []
        for number in sampled_steps(found.step):
            shown += (
                [row_by_step[number]]
                if number in row_by_step
                else client.step_page(found.id, after=number - 1, limit=1)
            )
    print("\n".join(summarize_steps(to_json(found), shown, newest)))
    if shown:
        print()
        print_table(HEADER, [step_row(row) for row in shown])
        if found.step > len(shown):
            print(f"\n{len(shown)} of {found.step} steps; --last N or --all prints each")


def events(
    job: Job, after: After = 0, project: Project = "default", server: Server = None, as_json: AsJson = False
) -> None:
    """Print a job's history. With --json: one line per event."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.events import describe_event

    with connect(server) as client:
        found = client.events(job, after=after, project=project)
        if as_json:
            print_json_lines(found)
            return
        for event in found:
            when = time.strftime("%H:%M:%S", time.localtime(event.time_s))
            about = describe_event(event.type, event.data)
            print(fit_to_terminal(f"{event.number:5d}  {when}  g{event.generation}  {event.type:<12}  {about}"))


def ledger(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Show whether every committed step used each of its samples exactly once."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.ledger(job, project=project)
    if as_json:
        print_json(found)
        return
    verdict = "exact: each sample of each step was used once" if found.exact else "not exact"
    print(f"{verdict}; {found.steps} steps, {found.samples} samples, digest {found.samples_hash}")
    for problem in found.problems:
        print(f"  {problem}")


def _progress(job: "JobSummary") -> str:
    if job.step_is_estimated:
        return f"{job.step} (some repeated)"
    return str(job.step) if job.steps is None else f"{job.step}/{job.steps}"


def _state(text: str) -> str:
    """Return the name of a state that was typed in any case."""
    from regroup.service.domain.states import JobState

    if text.upper() not in JobState.__members__:
        raise typer.BadParameter(f"--state: {text!r} is not a state; the states are {', '.join(JobState)}")
    return text.upper()


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
