"""The commands story and evidence: the course of a job, and the evidence of an incident."""

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import print_json

if TYPE_CHECKING:
    from regroup.api.client.client import Client

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
Shown = Annotated[
    str | None,
    typer.Option("--file", metavar="NAME", help="Print this file of the evidence, e.g. summary.txt; write nothing."),
]
Incident = Annotated[
    int | None,
    typer.Option("--incident", metavar="NUMBER", min=1, help="Show this incident with its stacks; the oldest is 1."),
]
Points = Annotated[int, typer.Option("--points", metavar="N", min=2, max=1000, help="Largest number of steps in JSON.")]
_WIDTH = 100
"""Characters of the bar of states."""
_PART_BYTES = 2**20


def story(
    job: Job,
    incident: Incident = None,
    points: Points = 400,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show the course of a job over time: states, generations, incidents, checkpoints, requests."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.render.story import render_incident, render_story

    with connect(server) as client:
        if incident is None:
            course = client.story(job, points=points, project=project)
            answer, lines = course, render_story(course, _WIDTH)
        else:
            detail = client.incident(job, incident, project=project)
            answer, lines = detail, render_incident(detail)
    if as_json:
        print_json(answer)
    else:
        print("\n".join(lines))


def evidence(
    job: Job,
    number: Number = None,
    output: Target = None,
    file: Shown = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Save all evidence of an incident as a zip file: stacks, collectives, output, resources, history."""
    from regroup.api.cli.common.connection import connect
    from regroup.service.domain.byte_text import bytes_text
    from regroup.service.domain.errors import NotFoundError

    with connect(server) as client:
        found = client.get(job, project=project)
        if not found.incidents:
            raise NotFoundError(f"job {found.id} has had no incident")
        number = number or len(found.incidents)
        if file is not None:
            _print_file(client, found.id, number, file, as_json=as_json)
            return
        data = client.evidence(found.id, number)
    path = output or Path(f"{found.name}-incident-{number}.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if as_json:
        print_json({"path": str(path), "job": found.id, "number": number, "size_bytes": len(data)})
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        print(archive.read("summary.txt").decode().rstrip())
    print(f"{path}: {bytes_text(len(data))}")


def _print_file(client: "Client", job: str, number: int, name: str, *, as_json: bool) -> None:
    """Print a file of the evidence of an incident."""
    part = client.evidence_file(job, number, name, limit=_PART_BYTES)
    texts = [part.text]
    while part.next_offset < part.size_bytes:
        part = client.evidence_file(job, number, name, offset=part.next_offset, limit=_PART_BYTES)
        texts.append(part.text)
    text = "".join(texts)
    if as_json:
        print_json({"file": name, "text": text, "size_bytes": part.size_bytes})
    else:
        print(text.rstrip("\n"))
