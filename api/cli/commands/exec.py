"""The command exec: run a command on the node of a rank and pass on its output and exit code."""

import sys
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import exit_with, print_json_lines, print_message

Command = Annotated[
    list[str], typer.Argument(metavar="-- CMD [ARGS]...", help="Command to run. It runs without a shell.")
]
Rank = Annotated[
    int, typer.Option("--rank", "-r", metavar="N", min=0, help="Rank whose node, environment and folder are used.")
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Stop the command after this time, e.g. 90s, with exit code 124."),
]
Stdin = Annotated[
    bool,
    typer.Option("--stdin", help="Read all of standard input first and pass it to the command, at most 512 KiB."),
]
_SIGNAL_BASE = 128


def exec(
    job: Job,
    command: Command,
    rank: Rank = 0,
    timeout: Timeout = None,
    stdin: Stdin = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Run a command on the node of a rank, with its environment and in its folder; exit with the command's code."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.schemas.exec import ExecExit, ExecOutput

    given = sys.stdin.buffer.read() if stdin else b""
    code = 1
    with connect(server) as client:
        for event in client.exec(job, command, rank=rank, timeout=timeout, stdin=given, project=project):
            if isinstance(event, ExecExit):
                code = event.code
                if event.why != "exited":
                    print_message(f"regroup: the command was stopped: {_WHY[event.why]}")
            if as_json:
                print_json_lines([event])
            elif isinstance(event, ExecOutput):
                out = sys.stdout.buffer if event.stream == "stdout" else sys.stderr.buffer
                out.write(event.data)
                out.flush()
    exit_with(_SIGNAL_BASE - code if code < 0 else code)


_WHY = {
    "timeout": "it reached its --timeout",
    "ended": "the job has ended",
    "lost": "its node or its agent is lost",
}
