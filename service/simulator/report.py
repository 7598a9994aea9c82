"""The report of a simulation, and its counters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.entries import Priority, WaitingJob


@dataclass(frozen=True)
class Wait:
    """The wait of a job before its first start."""

    project: str
    priority: Priority
    wait_s: float


@dataclass(frozen=True)
class Waits:
    """Distribution of the waits of a group of jobs, in seconds."""

    jobs: int
    p50_s: float
    p95_s: float
    max_s: float


@dataclass(frozen=True)
class Report:
    """Result of a simulation."""

    seconds: float
    devices: int
    jobs: int
    finished: int
    never_started: int
    suspended: int
    """Number of times that a job was suspended for a job of higher priority."""
    failures: int
    """Number of node failures."""
    utilisation: float
    """Share of the device-seconds that were allocated to jobs."""
    goodput: float
    """Share of the allocated device-seconds that did useful work."""
    fragmentation: float
    """Share of the free devices that are on partly allocated nodes, as a mean over time."""
    longest_waiting_s: float
    """Longest wait of the jobs that are queued at the end."""
    waits: dict[str, Waits]
    """Waits before the first start: for `all` jobs, by priority and by project."""
    budget_suspensions: int = 0
    """Number of jobs that were suspended because a budget was used up."""
    project_device_hours: Mapping[str, float] = field(default_factory=dict[str, float])
    """Device-hours of each project that has a budget."""
    starts_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Job id → its first start in the simulation."""
    ends_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """Job id → its end."""


@dataclass
class Tally:
    """Counters of a simulation, integrated over time."""

    nodes: Sequence[Node]
    allocated: int = 0
    """Number of devices that are allocated now."""
    useful: float = 0.0
    """Device-seconds of useful work."""
    suspended: int = 0
    budget_suspensions: int = 0
    failures: int = 0
    waits: list[Wait] = field(default_factory=list[Wait])
    starts_s: dict[str, float] = field(default_factory=dict[str, float])
    ends_s: dict[str, float] = field(default_factory=dict[str, float])
    _now_s: float = 0.0
    _allocated_device_s: float = 0.0
    _fragmentation_s: float = 0.0
    _fragmentation: float = 0.0

    def advance(self, now_s: float) -> None:
        """Advance the time to `now_s`, with the current allocation."""
        self._allocated_device_s += self.allocated * (now_s - self._now_s)
        self._fragmentation_s += self._fragmentation * (now_s - self._now_s)
        self._now_s = now_s

    def record_fragmentation(self, nodes: Iterable[Node]) -> None:
        """Record the fragmentation of the free devices from now on."""
        free = partly = 0.0
        for node in nodes:
            total, unused = (node.gpus, node.free_gpus) if node.gpus else (node.cpus, node.free_cpus)
            free += unused
            partly += unused if unused < total else 0.0
        self._fragmentation = partly / free if free else 0.0

    def report(self, jobs: int, finished: int, waiting: Sequence[tuple[WaitingJob, float]]) -> Report:
        """Return the report. `waiting` lists the jobs that are still queued, with their waits in seconds."""
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
            utilisation=self._allocated_device_s / (devices * self._now_s) if devices and self._now_s else 0.0,
            goodput=self.useful / self._allocated_device_s if self._allocated_device_s else 0.0,
            fragmentation=self._fragmentation_s / self._now_s if self._now_s else 0.0,
            longest_waiting_s=max((wait_s for _, wait_s in waiting), default=0.0),
            waits={group: _waits(sorted(waits_s)) for group, waits_s in sorted(groups.items())},
            budget_suspensions=self.budget_suspensions,
            starts_s=self.starts_s,
            ends_s=self.ends_s,
        )


def _waits(ordered: Sequence[float]) -> Waits:
    if not ordered:
        return Waits(0, 0.0, 0.0, 0.0)

    def quantile(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Waits(len(ordered), quantile(0.5), quantile(0.95), ordered[-1])
