"""Events that a peer's processes append to a file, and the SIGKILL that one process sends to itself once per run."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


def note(path: str, kind: str, **data: object) -> None:
    """Append one event with its time (Unix seconds). A single write of a short line is atomic."""
    line = json.dumps({"kind": kind, "time_s": time.time(), **data}) + "\n"
    with Path(path).open("a") as file:
        file.write(line)


@dataclass(frozen=True)
class Killing:
    """Rank, step and phase at which a rank kills itself."""

    events: str
    """File to which the rank appends `kill` just before the SIGKILL."""
    rank: int
    step: int
    phase: str
    """`forward`, `backward` or `optimizer`."""

    def kill_if_due(self, rank: int, step: int, phase: str) -> None:
        """Kill this process at the chosen rank, step and phase, once. Loops call this at every possible kill point."""
        marker = Path(self.events + ".killed")
        if (rank, step, phase) == (self.rank, self.step, self.phase) and not marker.exists():
            marker.touch()
            note(self.events, "kill", step=step, rank=rank, phase=phase)
            os.kill(os.getpid(), signal.SIGKILL)
