"""The verb exec: a command beside a rank, its output and its exit code as if it ran here."""

import sys
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import exit_with, print_json_lines, print_message

Command = Annotated[list[str], typer.Argument(metavar="-- CMD [ARGS]...", help="What to run; no shell reads it.")]
Rank = Annotated[int, typer.Option("--rank", "-r", metavar="N", min=0, help="In which rank's place.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="End it after so long, e.g. 90s: exit code 124.")
]
Stdin = Annotated[
    bool, typer.Option("--stdin", help="Read all of standard input first and hand it to the command, at most 512 KiB.")
]
_SIGNAL_BASE = 128


def exec(
    job: Job,
    command: Command,
    rank: Rank = 0,
    timeout: Timeout = None,
    stdin: Stdin = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Run a command on the node of a rank, with its environment and in its folder; exits with the command's code."""
    from regroup.api.client.discovery import connect
    from regroup.api.schemas.exec import ExecExit, ExecOutput

    given = sys.stdin.buffer.read() if stdin else b""
    code = 1
    with connect(server) as client:
        for event in client.exec(job, command, rank=rank, timeout=timeout, stdin=given):
            if isinstance(event, ExecExit):
                code = event.code
                if event.why != "exited":
                    print_message(f"regroup: the command was ended: {_WHY[event.why]}")
            if as_json:
                print_json_lines([event])
            elif isinstance(event, ExecOutput):
                out = sys.stdout.buffer if event.stream == "stdout" else sys.stderr.buffer
                out.write(event.data)
                out.flush()
    exit_with(_SIGNAL_BASE - code if code < 0 else code)


_WHY = {
    "timeout": "it ran for as long as --timeout allows",
    "ended": "the job is over",
    "lost": "its node or its agent is gone",
}
