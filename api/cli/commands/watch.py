"""Commands that can follow jobs: watch, logs and changes."""

import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.interrupt import continuing, stating
from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import exit_with, print_json, print_json_lines, print_message

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.live.job_view import JobView
    from regroup.api.live.output import OutputSource
    from regroup.api.schemas.history import Notice
    from regroup.api.schemas.jobs import Job as JobModel

StreamName = Literal["stdout", "stderr"]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank", "-r", metavar="N", min=0, help="Rank whose log is printed or searched.  [default: 0; --search: all]"
    ),
]
Generation = Annotated[
    int | None, typer.Option("--generation", metavar="N", min=1, help="Generation of the rank.  [default: the newest]")
]
Stream = Annotated[
    StreamName | None,
    typer.Option(
        "--stream",
        metavar="NAME",
        case_sensitive=False,
        help="stdout or stderr.  [default: stdout; --search, --all-ranks: both]",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")]
AfterNumber = Annotated[
    int | None, typer.Option("--after", metavar="N", min=0, help="Only notices with a higher number.")
]
FollowAll = Annotated[bool, typer.Option("--follow", "-f", help="Continue with new notices, until interrupted.")]
Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="Print the lines with this text, of all generations.")
]
AllRanks = Annotated[
    bool, typer.Option("--all-ranks", help="Follow all ranks, at most 32, from near the end of their output.")
]
_QUIET_S = 3.0
"""Time without output after which `logs -f` states that there is none yet."""


def watch(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Show a job live: progress, loss, nodes and ranks, incidents. Without a terminal: one line per event."""
    from regroup.api.cli.common.connection import connect

    with connect(server, patient=True) as client, stating("interrupted; jobs continue"):
        watch_to_the_end(client, client.get(job, project=project), as_json=as_json)


def watch_to_the_end(
    client: "Client", job: "JobModel", *, as_json: bool, sources: "Sequence[OutputSource] | None" = None
) -> None:
    """Show `job` until it ends; exit 0 only if it SUCCEEDED.

    Args:
        client: Client of the job's server.
        job: The job.
        as_json: Print only the final job.
        sources: Output of ranks that is shown too; None if standard output shows the progress of the job instead.
    """
    from regroup.api.client.discovery import feed
    from regroup.api.live.display import display
    from regroup.api.live.follow import follow

    with continuing(job):
        if as_json:
            job = client.wait(job.id)
            print_json(job)
            state = str(job.state)
        else:
            with display(output=sources is not None) as out:
                view = follow(feed(client, job.id), first_view(job), out, sources or ())
            state = view.state
            print_message(f"{job.id} {state}" + ("" if state == "SUCCEEDED" else f"; regroup why {job.id}"))
    if state != "SUCCEEDED":
        exit_with(exit_codes.JOB_NOT_SUCCEEDED)


def first_view(job: "JobModel") -> "JobView":
    """Return the view of a job before its first event."""
    from regroup.api.live.job_view import JobView

    return JobView(job.id, job.name, job.steps, workload=job.workload_kind, device=job.device_kind)


def logs(
    job: Job,
    rank: Rank = None,
    generation: Generation = None,
    stream: Stream = None,
    follow: Follow = False,
    search: Search = None,
    all_ranks: AllRanks = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Print the output of a rank, or follow or search that of all ranks."""
    from regroup.api.cli.commands.ranks import print_matches, print_merged
    from regroup.api.cli.common.connection import connect

    if search is not None or all_ranks:
        with connect(server, patient=search is None) as client, stating("interrupted; jobs continue"):
            found = client.get(job, project=project)
            if search is not None:
                print_matches(
                    client, found.id, search, rank=rank, generation=generation, stream=stream, as_json=as_json
                )
                return
            streams = () if stream is None else (stream,)
            with continuing(found):
                print_merged(client, found.id, streams=streams, generation=generation, as_json=as_json)
        return
    rank, stream = rank or 0, stream or "stdout"

    with connect(server, patient=follow) as client, stating("interrupted; jobs continue"):
        found = client.get(job, project=project)
        silence = silence_text(found, rank, generation, stream)
        with continuing(found), _stating_silence(silence, follow and not as_json) as received:
            for text in client.logs(found.id, rank=rank, generation=generation, stream=stream, follow=follow):
                if not text:
                    continue
                received()
                if as_json:
                    print_json_lines([{"rank": rank, "stream": stream, "text": text}])
                else:
                    sys.stdout.write(text)
                    sys.stdout.flush()


class _Received:
    """Remembers whether there was output."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> None:
        """Note that there was some."""
        self.is_set = True


def changes(
    after: AfterNumber = None, follow: FollowAll = False, server: Server = None, as_json: AsJson = False
) -> None:
    """Print what changed in the last hour in all jobs, nodes and projects that you see. With --follow: from now on."""
    from regroup.api.cli.common.connection import connect

    with connect(server, patient=follow) as client, stating("interrupted"):
        found = client.follow_changes(after=after) if follow else _recent_changes(client, after or 0)
        if as_json:
            print_json_lines(found)
            return
        for notice in found:
            print(_describe_notice(notice), flush=True)


def _recent_changes(client: "Client", after: int) -> "Iterator[Notice]":
    while (page := client.changes(after=after)).next_after > after:
        yield from page.notices
        after = page.next_after


def _describe_notice(notice: "Notice") -> str:
    """Return a line: number, time, object, kind, and the state of a job."""
    when = time.strftime("%H:%M:%S", time.localtime(notice.time_s))
    place = f"{notice.project}/{notice.job}" if notice.job else notice.node or notice.project or ""
    about = f"{notice.kind} {notice.state or ''}".rstrip()
    if (notice.topic, notice.kind) == ("stream", "missed"):
        about = "notices before this one were removed"
    return f"{notice.number:8d}  {when}  {notice.topic:<7}  {place:<40}  {about}"


@contextmanager
def _stating_silence(silence: str, is_waiting: bool) -> Generator[_Received]:
    """State on standard error that there is no output: at the end, and if `is_waiting` also after a few seconds."""
    received = _Received()

    def state_so_far() -> None:
        if not received.is_set:
            print_message(f"{silence}; waiting for output")

    timer = Timer(_QUIET_S, state_so_far)
    timer.daemon = True
    if is_waiting:
        timer.start()
    try:
        yield received
    finally:
        timer.cancel()
    if not received.is_set:
        print_message(silence)


def silence_text(job: "JobModel", rank: int, generation: int | None, stream: StreamName) -> str:
    """Return the message for a rank that has printed nothing, with the place where there may be something."""
    where = "" if generation is None else f" in generation {generation}"
    text = f"rank {rank} of {job.name} printed nothing to {stream}{where} ({job.state})"
    if job.workload_kind == "builtin":
        return f"{text}. The built-in trainer prints nothing: `regroup watch {job.id}` shows its progress"
    other = "stderr" if stream == "stdout" else "stdout"
    return f"{text}; see also --stream {other}"
