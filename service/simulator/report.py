"""What a simulation reports, and how it is counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.entries import Priority, WaitingJob


@dataclass(frozen=True)
class Wait:
    """How long a job waited for its first turn."""

    project: str
    priority: Priority
    wait_s: float


@dataclass(frozen=True)
class Waits:
    """Of some jobs, in seconds."""

    jobs: int
    p50_s: float
    p95_s: float
    max_s: float


@dataclass(frozen=True)
class Report:
    """What came of a simulation."""

    seconds: float
    devices: int
    jobs: int
    finished: int
    never_started: int
    suspended: int
    """How often a job was, to make room."""
    failures: int
    """Of nodes."""
    utilisation: float
    """Share of the device-seconds that jobs held."""
    goodput: float
    """Share of those in which work was done that counts."""
    fragmentation: float
    """Of the devices that are free, the part on nodes of which others are taken; mean over time."""
    longest_waiting_s: float
    """Of those that wait at the end."""
    waits: dict[str, Waits]
    """For the first turn: `all`, by priority, and by project."""


@dataclass
class Tally:
    """Counted as time passes."""

    nodes: Sequence[Node]
    held: int = 0
    """Devices, now."""
    useful: float = 0.0
    """Device-seconds of work that counts."""
    suspended: int = 0
    failures: int = 0
    waits: list[Wait] = field(default_factory=list[Wait])
    _now_s: float = 0.0
    _held_s: float = 0.0
    _fragments_s: float = 0.0
    _fragments: float = 0.0

    def passes(self, now_s: float) -> None:
        """Time goes on to `now_s`, as things stand."""
        self._held_s += self.held * (now_s - self._now_s)
        self._fragments_s += self._fragments * (now_s - self._now_s)
        self._now_s = now_s

    def looked(self, nodes: Iterable[Node]) -> None:
        """How broken up the free devices are from now on."""
        free = partly = 0.0
        for node in nodes:
            whole, left = (node.gpus, node.free_gpus) if node.gpus else (node.cpus, node.free_cpus)
            free += left
            partly += left if left < whole else 0.0
        self._fragments = partly / free if free else 0.0

    def report(self, jobs: int, finished: int, waiting: Sequence[tuple[WaitingJob, float]]) -> Report:
        """The sums. `waiting`: who still does, and since when."""
        devices = int(sum(node.gpus or node.cpus for node in self.nodes))
        groups: dict[str, list[float]] = {"all": []}
        for wait in self.waits:
            for group in ("all", f"priority {wait.priority.name}", f"project {wait.project}"):
                groups.setdefault(group, []).append(wait.wait_s)
        return Report(
            seconds=self._now_s,
            devices=devices,
            jobs=jobs,
            finished=finished,
            never_started=jobs - len(self.waits),
            suspended=self.suspended,
            failures=self.failures,
            utilisation=self._held_s / (devices * self._now_s) if devices and self._now_s else 0.0,
            goodput=self.useful / self._held_s if self._held_s else 0.0,
            fragmentation=self._fragments_s / self._now_s if self._now_s else 0.0,
            longest_waiting_s=max((since_s for _, since_s in waiting), default=0.0),
            waits={group: _waits(sorted(waited)) for group, waited in sorted(groups.items())},
        )


def _waits(ordered: Sequence[float]) -> Waits:
    if not ordered:
        return Waits(0, 0.0, 0.0, 0.0)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Waits(len(ordered), at(0.5), at(0.95), ordered[-1])
