"""The command ranks, and the output of several ranks for `logs`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import print_json, print_json_lines, print_message, print_table

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.inspection.ranks import RankView

First = Annotated[int, typer.Option("--first", metavar="N", min=0, help="First rank to list.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=4096, help="Largest number of ranks.")]


def ranks(
    job: Job,
    first: First = 0,
    limit: Limit = 1024,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List a job's ranks: node, step, phase, and how long each works and waits in a step."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.ranks(job, first=first, limit=limit, project=project)
    if as_json:
        print_json(found)
        return
    header = ("RANK", "NODE", "DEVICE", "STATE", "STEP", "PHASE", "WORK", "WAIT", "FACTOR")
    print_table(header, [_row(each) for each in found.ranks])
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.counts.items()))
    print_message(f"generation {found.generation}: {found.total} ranks" + (f" ({states})" if states else ""))


def print_matches(
    client: "Client",
    job: str,
    text: str,
    *,
    rank: int | None,
    generation: int | None,
    stream: str | None,
    as_json: bool,
) -> None:
    """Print all lines of output with a text, each with its rank and offset."""
    cursor, count = None, 0
    while True:
        page = client.search_log(job, text, rank=rank, generation=generation, stream=stream, limit=500, cursor=cursor)
        count += len(page.matches)
        if as_json:
            print_json_lines(page.matches)
        else:
            for each in page.matches:
                print(f"g{each.generation} rank {each.rank} {each.stream} {each.offset}: {each.line}")
        for each in page.unread:
            print_message(f"not searched: {each}")
        cursor = page.next_cursor
        if cursor is None:
            break
    if not count:
        print_message(f"no line of output contains {text!r}")


def print_merged(client: "Client", job: str, *, streams: Sequence[str], generation: int | None, as_json: bool) -> None:
    """Print the output of all ranks as it arrives, until the job ends. Each line begins with its rank."""
    rest: dict[tuple[int, str], str] = {}
    for piece in client.follow_logs(job, streams=streams, generation=generation):
        if as_json:
            print_json_lines([piece])
            continue
        name = (piece.rank, piece.stream)
        *lines, rest[name] = (rest.get(name, "") + piece.text).split("\n")
        for line in lines:
            print(f"{piece.rank:>4} {'E' if piece.stream == 'stderr' else ' '} {line}")
        sys.stdout.flush()
    for (number, stream), line in rest.items():
        if line:
            print(f"{number:>4} {'E' if stream == 'stderr' else ' '} {line}")


def _row(each: "RankView") -> tuple[str, ...]:
    step = "-" if each.step is None else str(each.step)
    figures = (_seconds(each.work_s), _seconds(each.wait_s), "-" if each.factor is None else f"{each.factor:.2f}")
    return (str(each.rank), each.node, each.device or "-", str(each.state), step, each.phase or "-", *figures)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
