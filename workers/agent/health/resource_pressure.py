"""Resource pressure of a node while a job runs there: memory, disk space, faulty GPUs. Changes are reported."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regroup.workers.agent.health.preflight import SCRATCH_BYTES
from regroup.workers.os import node_facts, nvml

_LOW_MEMORY = 0.03
"""Share of the host's memory below which the kernel soon kills processes."""
_RECOVERY_FACTOR = 2.0
"""Multiple of the bound above which a shortage ends. It prevents a report at every poll."""


@dataclass(frozen=True)
class Readings:
    """Resources of a node at one moment."""

    free_memory_bytes: int
    memory_bytes: int
    free_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Folder → free bytes on its file system."""
    broken_gpus: tuple[str, ...] = ()


class ResourcePressure:
    """Tracks the shortages of a node."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def changes(self, now: Readings) -> list[tuple[str, str]]:
        """Return (`memory`, `disk` or `device`, message) of each shortage that began or ended; empty message: ended."""
        found = {"memory": self._memory(now), "disk": self._disk(now), "device": "; ".join(now.broken_gpus)}
        changed = [
            (what, message) for what, message in found.items() if bool(message) != bool(self._reported.get(what))
        ]
        self._reported.update(changed)
        return changed

    def _memory(self, now: Readings) -> str:
        if now.free_memory_bytes >= self._bound("memory", _LOW_MEMORY * now.memory_bytes):
            return ""
        return f"only {now.free_memory_bytes >> 20} MiB of {now.memory_bytes / 2**30:.1f} GiB of memory are free"

    def _disk(self, now: Readings) -> str:
        bound = self._bound("disk", SCRATCH_BYTES)
        short = [
            f"only {free >> 20} MiB are free for {folder}" for folder, free in now.free_bytes.items() if free < bound
        ]
        return "; ".join(short)

    def _bound(self, what: str, low: float) -> float:
        return _RECOVERY_FACTOR * low if self._reported.get(what) else low


def read(folders: Iterable[Path], gpus: Iterable[int]) -> Readings:
    """Read the free memory, the free space of these folders and the state of these GPUs.

    Blocking: the call takes as long as a disk or a driver hangs.
    """
    facts = node_facts.host_facts()
    gpus = tuple(gpus)
    return Readings(
        facts["free_memory_bytes"],
        facts["memory_bytes"],
        {str(folder): node_facts.free_bytes(folder) for folder in dict.fromkeys(folders)},
        tuple(nvml.broken(gpus)[0]) if gpus else (),
    )
