"""What goes short on a node while a job runs there: memory, room for files, a GPU. Told when it changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regroup.workers.agent.health.preflight import SCRATCH_BYTES
from regroup.workers.os import node_facts, nvml

_LOW_MEMORY = 0.03
"""Of the host's: below, the kernel soon kills."""
_WELL = 2.0
"""What was short is well again at so many times the bound, so that it is not told at each look."""


@dataclass(frozen=True)
class Readings:
    """A node at one moment."""

    free_memory_bytes: int
    memory_bytes: int
    free_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Folder → room on its file system."""
    broken_gpus: tuple[str, ...] = ()


class ResourcePressure:
    """One agent's view of its node."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def changes(self, now: Readings) -> list[tuple[str, str]]:
        """What is short now, and what no longer is: `memory`, `disk` or `device`, and a message; empty: well again."""
        found = {"memory": self._memory(now), "disk": self._disk(now), "device": "; ".join(now.broken_gpus)}
        changed = [(what, message) for what, message in found.items() if bool(message) != bool(self._told.get(what))]
        self._told.update(changed)
        return changed

    def _memory(self, now: Readings) -> str:
        if now.free_memory_bytes >= self._bound("memory", _LOW_MEMORY * now.memory_bytes):
            return ""
        return f"{now.free_memory_bytes >> 20} MiB of {now.memory_bytes / 2**30:.1f} GiB of memory are free"

    def _disk(self, now: Readings) -> str:
        bound = self._bound("disk", SCRATCH_BYTES)
        short = [f"{free >> 20} MiB are free for {folder}" for folder, free in now.free_bytes.items() if free < bound]
        return "; ".join(short)

    def _bound(self, what: str, low: float) -> float:
        return _WELL * low if self._told.get(what) else low


def read(folders: Iterable[Path], gpus: Iterable[int]) -> Readings:
    """Memory, the room for these folders, and these GPUs. Takes as long as a disk or a driver hangs."""
    facts = node_facts.host_facts()
    gpus = tuple(gpus)
    return Readings(
        facts["free_memory_bytes"],
        facts["memory_bytes"],
        {str(folder): node_facts.free_bytes(folder) for folder in dict.fromkeys(folders)},
        tuple(nvml.broken(gpus)[0]) if gpus else (),
    )
