"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="REGROUP_SERVER",
        help="URL of the server.  [default: the server that `regroup serve` started on this machine]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of a job, or a name: then the newest job of that name.")]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="Job spec, YAML or JSON; see docs/job-spec.md.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Set one field, e.g. training.steps=100; the value is YAML. Repeatable."
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        envvar="REGROUP_STATE_DIR",
        help="Folder of the server's files.",
        show_default=False,
    ),
]
