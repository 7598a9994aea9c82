"""Jobs as the scheduler sees them: waiting jobs and jobs that hold devices. Specs and rows are read elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.place import Demand


class Priority(IntEnum):
    """Priority classes, the last the most urgent. A job can be preempted by jobs of a higher class."""

    low = 0
    normal = 1
    high = 2
    critical = 3


class Preemptibility(StrEnum):
    """Devices that other jobs can take from a running job."""

    none = "none"
    """No devices."""
    semi = "semi"
    """Ranks above the smallest size."""
    full = "full"
    """All devices: the job is suspended with its state in durable storage and returns to the queue."""


@dataclass(frozen=True)
class Size:
    """One legal size of a job."""

    layout: Layout
    demand: Demand

    @property
    def ranks(self) -> int:
        """Number of devices of this size."""
        return self.demand.ranks


@dataclass(frozen=True)
class JobReference:
    """A job, for messages about other jobs."""

    job_id: str
    name: str
    project: str

    def text_for(self, project: str) -> str:
        """Return how a message to people of `project` names the job: by name only in its own project.

        People of other projects may not see the name. The id says nothing to those who may not see the job.
        """
        return f"job {self.name!r}" if project == self.project else f"job {self.job_id} of another project"


@dataclass(frozen=True)
class WaitingJob:
    """A queued job."""

    job_id: str
    name: str
    sizes: tuple[Size, ...]
    """Legal sizes up to the requested one, the smallest first."""
    project: str = "default"
    priority: Priority = Priority.normal
    preemptibility: Preemptibility = Preemptibility.full
    queued_s: float = 0.0
    """Time since which the job waits, in Unix seconds."""
    max_duration_s: float | None = None
    """Time from its admission within which the job surely ends; None if it has no limit."""
    pending_dependencies: tuple[str, ...] = ()
    """Names of jobs that must succeed first and have not yet."""

    @property
    def reference(self) -> JobReference:
        """The job, for messages about it."""
        return JobReference(self.job_id, self.name, self.project)

    @property
    def min_ranks(self) -> int:
        """Number of devices of the smallest size."""
        return self.sizes[0].ranks

    def non_preemptible_ranks(self, ranks: int) -> int:
        """Return the number of ranks that could not be preempted if the job had `ranks`."""
        return non_preemptible(self.preemptibility, ranks, self.min_ranks)


@dataclass(frozen=True)
class RunningJob:
    """A job that holds devices."""

    job_id: str
    name: str
    demand: Demand
    """Demand of the current allocation."""
    node_ranks: tuple[tuple[str, int], ...]
    """Node id and number of ranks there."""
    smaller_sizes: tuple[Size, ...] = ()
    """Legal sizes below the current one, the smallest first."""
    project: str = "default"
    priority: Priority = Priority.normal
    preemptibility: Preemptibility = Preemptibility.full
    allocated_at_s: float = 0.0
    """Time of the allocation in Unix seconds."""
    ends_s: float | None = None
    """Expected end in Unix seconds; None if it cannot be predicted."""
    is_releasing: bool = False
    """True if the job is ending or being preempted: its devices become free without further action."""

    @property
    def reference(self) -> JobReference:
        """The job, for messages about it."""
        return JobReference(self.job_id, self.name, self.project)

    @property
    def non_preemptible_ranks(self) -> int:
        """Number of ranks that cannot be preempted."""
        return non_preemptible(
            self.preemptibility, self.demand.ranks, min((size.ranks for size in self.smaller_sizes), default=None)
        )


def split_shrinking_job(job: RunningJob, releases: Sequence[tuple[str, int]], now_s: float) -> list[RunningJob]:
    """Return a shrinking job as two: the part that stays and the part that becomes free."""
    released = dict(releases)
    stay = tuple((node_id, ranks - released.get(node_id, 0)) for node_id, ranks in job.node_ranks)
    count = sum(ranks for _, ranks in stay)
    stays = replace(
        job,
        demand=replace(job.demand, ranks=count),
        node_ranks=tuple(slot for slot in stay if slot[1]),
        smaller_sizes=tuple(size for size in job.smaller_sizes if size.ranks < count),
    )
    goes = replace(
        job, demand=replace(job.demand, ranks=sum(released.values())), node_ranks=tuple(releases), smaller_sizes=(),
        is_releasing=True, preemptibility=Preemptibility.full, ends_s=now_s,
    )  # fmt: skip
    return [stays, goes]


def non_preemptible(preemptibility: Preemptibility, ranks: int, minimum: int | None) -> int:
    """Return the number of ranks that other jobs cannot take."""
    if preemptibility is Preemptibility.full:
        return 0
    return ranks if preemptibility is Preemptibility.none or minimum is None else min(minimum, ranks)
