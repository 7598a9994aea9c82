"""Scripts as jobs and under torchrun: their specs, outputs and results."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server

TORCHRUN_S = 240.0


def script(name: str, path: Path, *args: str, ranks: int = 2, steps: int | None = None, **parts: Any) -> dict[str, Any]:
    """Return a spec that runs a file."""
    workload = {"kind": "script", "entrypoint": str(path), "args": list(args), "steps": steps}
    return {"name": name, "workload": workload, "layout": {"dp": ranks}, **parts}


def output(served: Server, job: Job, *, generation: int, rank: int = 0, stream: str = "stdout") -> str:
    """Return the output of a rank of a generation."""
    return "".join(served.client.logs(job.id, rank=rank, generation=generation, stream=stream))


def digest(text: str) -> str:
    """Return the line of an example's output that shows its result."""
    (line,) = [line for line in text.splitlines() if line.startswith("parameters ")]
    return line


def torchrun(path: Path, *args: str, ranks: int) -> str:
    """Return the output of a script under torchrun itself, without faults; it must exit with 0."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*command, str(path), *args],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TORCHRUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
