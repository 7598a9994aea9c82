"""Commands for checkpoints: checkpoints, verify, pin, unpin, export."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_job
from regroup.api.cli.common.options import AsJson, Job, Project, Server
from regroup.api.cli.common.output import exit_with, print_json, print_table

Checkpointed = Annotated[
    str,
    typer.Argument(
        metavar="JOB[@STEP]",
        autocompletion=complete_job,
        help="Job, and step of its checkpoint.  [default step: the newest]",
    ),
]
AtStep = Annotated[
    str,
    typer.Argument(metavar="JOB@STEP", autocompletion=complete_job, help="Job, and step of its checkpoint."),
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, e.g. model.safetensors.")]
SizesOnly = Annotated[bool, typer.Option("--sizes", help="Compare only the sizes of the files, not their contents.")]


def checkpoints(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """List a job's checkpoints."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.live.formatting import ago
    from regroup.service.domain.byte_text import bytes_text

    with connect(server) as client:
        found = client.checkpoints(job, project=project)
    if as_json:
        print_json(found)
        return
    now = time.time()
    rows = [
        (
            str(c.step),
            str(c.generation),
            bytes_text(c.size_bytes),
            _loss(c.validation_loss),
            ago(c.created_at, now),
            c.uri,
        )
        for c in found
    ]
    print_table(("STEP", "GENERATION", "SIZE", "HELD-OUT", "SAVED", "URI"), rows)


def export(
    job: Checkpointed, path: Target, project: Project = "default", server: Server = None, as_json: AsJson = False
) -> None:
    """Save the parameters of a checkpoint as one safetensors file, checked against its manifest.

    Needs torch on this machine.
    """
    from regroup.api.cli.common.connection import connect
    from regroup.service.domain.byte_text import bytes_text
    from regroup.service.domain.errors import NotFoundError, RegroupError

    reference, _, step = job.partition("@")
    with connect(server) as client:
        found = [c for c in client.checkpoints(reference, project=project) if step in ("", "latest", str(c.step))]
    if not found:
        raise NotFoundError(
            f"job {reference} has no checkpoint{f' of step {step}' if step else ''}; `regroup checkpoints` lists them"
        )
    newest = found[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    # The API layer does not import the workers, so code that needs torch runs in another process.
    command = [sys.executable, "-m", "regroup.workers.state.export", newest.uri, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RegroupError(f"cannot export: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    written = {
        "path": str(path),
        "step": newest.step,
        "generation": newest.generation,
        "size_bytes": path.stat().st_size,
    }
    if as_json:
        print_json(written)
    else:
        print(f"{path}: step {newest.step}, {bytes_text(path.stat().st_size)}")


def verify(
    job: Checkpointed,
    sizes: SizesOnly = False,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Compare the files of a checkpoint with its manifest. Exit 0 only if they are intact."""
    from regroup.api.cli.common.connection import connect
    from regroup.service.domain.byte_text import bytes_text
    from regroup.service.domain.errors import NotFoundError

    reference, _, step = job.partition("@")
    with connect(server) as client:
        if step in ("", "latest"):
            saved = client.checkpoints(reference, project=project)
            if not saved:
                raise NotFoundError(f"job {reference} has no checkpoint")
            step = str(saved[-1].step)
        found = client.verify_checkpoint(reference, _step_number(step), contents=not sizes, project=project)
    if as_json:
        print_json(found)
    else:
        what = "sizes" if sizes else "contents"
        verdict = "damaged" if found.faults else "intact"
        print(f"{verdict}: {what} of {found.files} files, {bytes_text(found.size_bytes)}, {found.uri}")
        for fault in found.faults:
            print(f"  {fault.name} {fault.problem}")
    if found.faults:
        exit_with(exit_codes.JOB_NOT_SUCCEEDED)


def pin(job: AtStep, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Pin a checkpoint, so that retention does not remove it."""
    reference, step = _split(job)
    run_action(
        server,
        lambda client: client.pin_checkpoint(reference, step, project=project),
        lambda found: f"step {found.step} is pinned",
        as_json=as_json,
    )


def unpin(job: AtStep, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Unpin a checkpoint, so that retention may remove it."""
    reference, step = _split(job)
    run_action(
        server,
        lambda client: client.unpin_checkpoint(reference, step, project=project),
        lambda found: f"step {found.step} is not pinned any more",
        as_json=as_json,
    )


def _split(job: str) -> tuple[str, int]:
    reference, at, step = job.partition("@")
    if not at:
        raise typer.BadParameter(f"JOB@STEP: {job!r} names no step; `regroup checkpoints {job}` lists them")
    return reference, _step_number(step)


def _step_number(step: str) -> int:
    if not step.isdecimal():
        raise typer.BadParameter(f"JOB@STEP: {step!r} is not a step; write a decimal number, for example JOB@400")
    return int(step)


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
