"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from regroup.api.cli.common.completion import complete_job, complete_node, complete_project
from regroup.api.cli.common.output import note_json

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="REGROUP_SERVER",
        help="URL of the server, or HOST:PORT.  [default: the server that `regroup serve` started on this machine]",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=note_json,
        help="Print JSON and nothing else on standard output. An error is JSON on standard error.",
    ),
]
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        autocompletion=complete_job,
        help="Id of a job, or a name: then the newest job of that name.",
    ),
]
Project = Annotated[
    str,
    typer.Option(
        "--project",
        metavar="NAME",
        autocompletion=complete_project,
        help="Project in which a job's name is looked up. An id needs none.",
    ),
]
Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE", autocompletion=complete_node, help="Name or id of the node, as `regroup nodes` shows it."
    ),
]
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
