"""What a peer's processes note while they run, and the SIGKILL that one of them gives itself, once in a run."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


def note(path: str, kind: str, **data: object) -> None:
    """Append one event with its time (Unix seconds); a single write of a short line is atomic."""
    line = json.dumps({"kind": kind, "time_s": time.time(), **data}) + "\n"
    with Path(path).open("a") as file:
        file.write(line)


@dataclass(frozen=True)
class Killing:
    """Where a rank kills itself."""

    events: str
    """File to which it notes `kill` just before."""
    rank: int
    step: int
    phase: str
    """`forward`, `backward` or `optimizer`."""

    def strike(self, rank: int, step: int, phase: str) -> None:
        """Called at every place where it may be."""
        marker = Path(self.events + ".killed")
        if (rank, step, phase) == (self.rank, self.step, self.phase) and not marker.exists():
            marker.touch()
            note(self.events, "kill", step=step, rank=rank, phase=phase)
            os.kill(os.getpid(), signal.SIGKILL)
