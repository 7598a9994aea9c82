"""What the queue knows of jobs, those that wait and those that hold devices. Specs and rows are read elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from regroup.service.domain.layout import Layout
from regroup.service.policy.placement.place import Demand


class Priority(IntEnum):
    """Classes, the last the most urgent. A job makes room for those of a higher class."""

    low = 0
    normal = 1
    high = 2
    critical = 3


class Preemptibility(StrEnum):
    """What others may take from a job that runs."""

    none = "none"
    """Nothing."""
    semi = "semi"
    """Ranks above its smallest size."""
    full = "full"
    """All: it is suspended with its state in durable storage, and queues again."""


@dataclass(frozen=True)
class Size:
    """One legal size of a job."""

    layout: Layout
    demand: Demand

    @property
    def ranks(self) -> int:
        """Devices it holds."""
        return self.demand.ranks


@dataclass(frozen=True)
class WaitingJob:
    """A queued job."""

    job_id: str
    name: str
    sizes: tuple[Size, ...]
    """Legal ones up to the wanted one, the smallest first."""
    project: str = "default"
    priority: Priority = Priority.normal
    preemptibility: Preemptibility = Preemptibility.full
    queued_s: float = 0.0
    """Since when it waits; Unix seconds."""
    max_duration_s: float | None = None
    """It ends within so long of its turn, whatever it does; None if nothing ends it."""
    pending_dependencies: tuple[str, ...] = ()
    """Names of jobs that have to succeed before, and have not yet."""

    @property
    def min_ranks(self) -> int:
        """Devices of its smallest size."""
        return self.sizes[0].ranks

    def non_preemptible_ranks(self, ranks: int) -> int:
        """How many of so many ranks cannot be taken back once it has them."""
        return non_preemptible(self.preemptibility, ranks, self.min_ranks)


@dataclass(frozen=True)
class RunningJob:
    """A job that holds devices."""

    job_id: str
    name: str
    demand: Demand
    """What it holds now."""
    node_ranks: tuple[tuple[str, int], ...]
    """Node id and ranks there."""
    smaller_sizes: tuple[Size, ...] = ()
    """Legal sizes below what it holds, the smallest first."""
    project: str = "default"
    priority: Priority = Priority.normal
    preemptibility: Preemptibility = Preemptibility.full
    allocated_at_s: float = 0.0
    """When it was given these devices; Unix seconds."""
    ends_s: float | None = None
    """When it is expected to end; None if nothing tells."""
    is_releasing: bool = False
    """It is ending, or was told to: its devices come free by themselves."""

    @property
    def non_preemptible_ranks(self) -> int:
        """Ranks that cannot be taken back."""
        return non_preemptible(
            self.preemptibility, self.demand.ranks, min((size.ranks for size in self.smaller_sizes), default=None)
        )


def split_shrinking_job(job: RunningJob, gives: Sequence[tuple[str, int]], now_s: float) -> list[RunningJob]:
    """A job that was told to give up so much, as two: what stays, and what comes free."""
    lost = dict(gives)
    stay = tuple((node_id, ranks - lost.get(node_id, 0)) for node_id, ranks in job.node_ranks)
    count = sum(ranks for _, ranks in stay)
    stays = replace(
        job,
        demand=replace(job.demand, ranks=count),
        node_ranks=tuple(seat for seat in stay if seat[1]),
        smaller_sizes=tuple(size for size in job.smaller_sizes if size.ranks < count),
    )
    goes = replace(
        job, demand=replace(job.demand, ranks=sum(lost.values())), node_ranks=tuple(gives), smaller_sizes=(),
        is_releasing=True, preemptibility=Preemptibility.full, ends_s=now_s,
    )  # fmt: skip
    return [stays, goes]


def non_preemptible(preemptibility: Preemptibility, ranks: int, least: int | None) -> int:
    """How many of so many ranks nobody else can have."""
    if preemptibility is Preemptibility.full:
        return 0
    return ranks if preemptibility is Preemptibility.none or least is None else min(least, ranks)
