"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="REGROUP_SERVER",
        help="The server to talk to; else the one that `regroup serve` started on this machine.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its name: then the newest of that name.")]
Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A job spec, YAML or JSON; see docs/job-spec.md.")]
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
        help="Where the server keeps its files.",
        show_default=False,
    ),
]
