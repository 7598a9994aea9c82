"""The command evidence: download the evidence of an incident."""

import io
import zipfile
from pathlib import Path
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import print_json

Number = Annotated[
    int | None,
    typer.Argument(
        metavar="[NUMBER]", min=1, help="Number of the incident; the oldest is 1.  [default: the newest incident]"
    ),
]
Target = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="File to write.  [default: NAME-incident-NUMBER.zip]"),
]


def evidence(
    job: Job,
    number: Number = None,
    output: Target = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Save all evidence of an incident as a zip file: stacks, collectives, output, resources, history."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.live.formatting import size
    from regroup.service.domain.errors import NotFoundError

    with connect(server) as client:
        found = client.get(job, project=project)
        if not found.incidents:
            raise NotFoundError(f"job {found.id} has had no incident")
        number = number or len(found.incidents)
        data = client.evidence(found.id, number)
    path = output or Path(f"{found.name}-incident-{number}.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if as_json:
        print_json({"path": str(path), "job": found.id, "number": number, "size_bytes": len(data)})
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        print(archive.read("summary.txt").decode().rstrip())
    print(f"{path}: {size(len(data))}")
