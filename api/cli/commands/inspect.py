"""Read-only commands: jobs, get, why, stacks, steps, events, checkpoints, export."""

import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import print_json, print_json_lines, print_table, to_json

State = Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state, e.g. RUNNING.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name.")]
Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only jobs of this project.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Largest number of jobs to list.")]
StackRank = Annotated[int | None, typer.Option("--rank", "-r", metavar="N", min=0, help="Only this rank.")]
After = Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only entries with a higher number.")]

Checkpointed = Annotated[
    str, typer.Argument(metavar="JOB[@STEP]", help="Job, and step of its checkpoint.  [default step: the newest]")
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, e.g. model.safetensors.")]


def jobs(
    state: State = None,
    name: Name = None,
    project: Project = None,
    limit: Limit = 50,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from regroup.api.client.discovery import connect
    from regroup.api.live.formatting import ago

    with connect(server) as client:
        found = client.jobs(state=[state] if state else [], name=name, project=project)
        newest = list(islice(found, limit))
    if as_json:
        print_json(newest)
        return
    now = time.time()
    rows = [
        (
            job.id,
            job.name,
            str(job.state),
            str(job.step) if job.steps is None else f"{job.step}/{job.steps}",
            _loss(job.loss),
            ago(job.created_at, now),
            job.reason,
        )
        for job in newest
    ]
    print_table(("JOB", "NAME", "STATE", "STEP", "LOSS", "CREATED", "REASON"), rows)


def get(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Show one job."""
    from regroup.api.client.discovery import connect
    from regroup.api.live.formatting import layout_text
    from regroup.api.live.predictions import format_comparisons

    with connect(server) as client:
        found = client.get(job)
    if as_json:
        print_json(found)
        return
    data: dict[str, Any] = to_json(found)
    hidden = ("spec", "conditions", "incidents", "error", "layout", "digest", "prediction")
    rows = [
        (key, _cell(key, value)) for key, value in data.items() if key not in hidden and value not in (None, "", {}, [])
    ]
    if data.get("layout"):
        rows.append(("layout", layout_text(data["layout"])))
    if data.get("prediction"):
        rows += [("predicted", line) for line in format_comparisons(data["prediction"])]
    rows += [(f"digest {key}", str(value)) for key, value in (data.get("digest") or {}).items()]
    rows.append(("incidents", str(len(data.get("incidents") or ()))))
    print_table(("FIELD", "VALUE"), rows)


def why(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Explain a job that is pending, failed or slow."""
    from regroup.api.cli.render.why import render_why
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        answer = client.why(job)
    if as_json:
        print_json(answer)
    else:
        print("\n".join(render_why(to_json(answer))))


def stacks(job: Job, rank: StackRank = None, server: Server = None, as_json: AsJson = False) -> None:
    """Show the stack of every thread of a job's ranks now, even if a rank hangs."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        found = [item for item in client.stacks(job) if rank is None or item.rank == rank]
    if as_json:
        print_json_lines(found)
        return
    for item in found:
        place = "" if item.phase is None else f", {item.phase} of step {item.step}"
        print(f"rank {item.rank} on {item.node} (process {item.pid}){place}\n{item.text.rstrip()}\n")


def steps(job: Job, after: After = 0, server: Server = None, as_json: AsJson = False) -> None:
    """Print a job's steps: loss, held-out loss, tokens, time. With --json: one line per step."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        found = client.steps(job, after=after)
        if as_json:
            print_json_lines(found)
            return
        header = ("STEP", "GENERATION", "LOSS", "HELD-OUT", "TOKENS", "SECONDS", "LR")
        print_table(
            header,
            [
                (
                    str(s.step),
                    str(s.generation),
                    _loss(s.loss),
                    _loss(s.validation_loss),
                    "-" if s.tokens is None else str(s.tokens),
                    "-" if s.duration_s is None else f"{s.duration_s:.3f}",
                    "-" if s.learning_rate is None else f"{s.learning_rate:.2e}",
                )
                for s in found
            ],
        )


def events(job: Job, after: After = 0, server: Server = None, as_json: AsJson = False) -> None:
    """Print a job's history. With --json: one line per event."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        found = client.events(job, after=after)
        if as_json:
            print_json_lines(found)
            return
        for event in found:
            when = time.strftime("%H:%M:%S", time.localtime(event.time_s))
            print(f"{event.number:5d}  {when}  g{event.generation}  {event.type:<12}  {_brief(event.type, event.data)}")


def checkpoints(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """List a job's checkpoints."""
    from regroup.api.client.discovery import connect
    from regroup.api.live.formatting import ago, size

    with connect(server) as client:
        found = client.checkpoints(job)
    if as_json:
        print_json(found)
        return
    now = time.time()
    rows = [
        (str(c.step), str(c.generation), size(c.size_bytes), _loss(c.validation_loss), ago(c.created_at, now), c.uri)
        for c in found
    ]
    print_table(("STEP", "GENERATION", "SIZE", "HELD-OUT", "SAVED", "URI"), rows)


def export(job: Checkpointed, path: Target, server: Server = None, as_json: AsJson = False) -> None:
    """Save the parameters of a checkpoint as one safetensors file, checked against its manifest.

    Needs torch on this machine.
    """
    from regroup.api.client.discovery import connect
    from regroup.api.live.formatting import size
    from regroup.service.domain.errors import NotFoundError, RegroupError

    reference, _, step = job.partition("@")
    with connect(server) as client:
        found = [c for c in client.checkpoints(reference) if step in ("", "latest", str(c.step))]
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
        print(f"{path}: step {newest.step}, {size(path.stat().st_size)}")


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _cell(key: str, value: object) -> str:
    if key.endswith("_at") and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _brief(kind: str, data: dict[str, Any]) -> str:
    from regroup.api.live.formatting import layout_text

    match kind:
        case "state":
            return " ".join(str(data[key]) for key in ("to", "reason", "message") if data.get(key))
        case "generation":
            return (
                f"{data['number']}: {data['world_size']} ranks from step {data['start_step']}, {data.get('cause', '')}"
            )
        case "incident":
            return f"{data.get('cause')} rank {data.get('rank')} at step {data.get('at_step')}"
        case "relocated":
            left = ", ".join(data["former"].values())
            return f"to {', '.join(node['name'] for node in data['nodes'])}" + (f", from {left}" if left else "")
        case "trial" if "kept" in data:
            return f"{'chosen: ' + layout_text(data['kept']) if data['kept'] else 'stopped'}: {data['why']}"
        case "trial":
            took = "not tried" if data["measured_s"] is None else f"{data['measured_s']:.3g} s per step"
            return f"{data['number']} of {data['of']}, {layout_text(data['layout'])}: {took}"
        case "checkpoint" | "checkpoint_removed":
            return f"step {data['step']}"
        case "stragglers":
            named = [f"rank {each['rank']} {each['work_s']:.3g} s per step" for each in data["ranks"]]
            return ", ".join(named) + f", others {data['ranks'][0]['usual_s']:.3g} s" if named else "none any more"
        case "note" if "launcher" in data:
            slower = f": {data['why']}" if data.get("why") else ""
            return f"{data.get('host')}: imports {data['import_s']:.1f} s, launcher {data['launcher']}{slower}"
        case "note" if data.get("kind") == "environment":
            how = "installed" if data["installed"] else "found"
            return f"{data['node']} {how} {data['python']} in {data['seconds']:.1f} s"
        case _:
            return " ".join(f"{key}={value}" for key, value in data.items())[:120]
