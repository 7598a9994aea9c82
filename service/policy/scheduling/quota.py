"""Quotas of projects: a guarantee that is reclaimed on request, the part of it that may be lent, and a limit.

All numbers count devices of any type. A rank uses one device.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class WaitCause(StrEnum):
    """Reason, other than missing devices, why a job waits; reason of its condition `Placeable`."""

    PROJECT_LIMIT = "project_limit"
    """The project would exceed its limit."""
    PROJECT_QUOTA = "project_quota"
    """The job needs more than its project's guarantee, and the rest cannot be borrowed now."""
    DEPENDENCY = "dependency"
    """Jobs that it depends on have not succeeded yet."""
    PREEMPTION = "preemption"
    """Other jobs are being shrunk or suspended for it."""


@dataclass(frozen=True)
class Quota:
    """Quota of one project. A project without a row has no guarantee and no limit."""

    guaranteed: int = 0
    """Devices that the project gets on request: jobs of projects that borrowed them are shrunk or suspended."""
    borrowable: int | None = None
    """Guaranteed devices that other projects may use while this one does not; None lends all. The rest stays free."""
    limit: int | None = None
    """Maximum number of devices; None for no limit."""
    weight: float = 1.0
    """Weight of the project among those of the same priority, per device in use."""

    @property
    def reserved(self) -> int:
        """Guaranteed devices that are never lent."""
        return 0 if self.borrowable is None else max(0, self.guaranteed - self.borrowable)


@dataclass(frozen=True)
class QuotaBlock:
    """Reason why quotas keep a job waiting."""

    reason: WaitCause
    message: str
    is_permanent: bool = False
    """True if the job would wait even in an idle cluster: only another quota helps."""


class QuotaUsage:
    """Devices in use by each project during a scheduling pass."""

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self._quotas = quotas
        self.used = Counter[str]()
        """Devices in use by each project."""
        self._non_preemptible = Counter[str]()
        self._reserving = {name: quota for name, quota in quotas.items() if quota.reserved}
        self.total_guaranteed = sum(quota.guaranteed for quota in quotas.values())

    def quota_of(self, project: str) -> Quota:
        """Return the project's quota."""
        return self._quotas.get(project, _NONE)

    def add(self, project: str, ranks: int, non_preemptible: int) -> None:
        """Add devices to the project's usage; `firm` of them cannot be preempted."""
        self.used[project] += ranks
        self._non_preemptible[project] += non_preemptible

    def would_borrow(self, project: str, ranks: int) -> bool:
        """Return True if the project would exceed its guarantee with `ranks` more devices. Without any guarantee in the
        cluster, no project borrows."""
        return self.total_guaranteed > 0 and self.used[project] + ranks > self.quota_of(project).guaranteed

    def borrowed(self, project: str) -> int:
        """Return the number of devices that the project uses beyond its guarantee."""
        return self.used[project] - self.quota_of(project).guaranteed

    def weighted_share(self, project: str) -> float:
        """Return the devices in use divided by the weight. The smaller share goes first."""
        return self.used[project] / self.quota_of(project).weight

    def find_block(
        self, project: str, ranks: int, non_preemptible: int, *, free: int, capacity: int
    ) -> QuotaBlock | None:
        """Return the reason why a job may not use `ranks` devices now, or None.

        Args:
            firm: those of its ranks that cannot be preempted.
            free: ranks of the job's kind that fit now.
            capacity: ranks of that kind that fit into the empty cluster.
        """
        quota, used = self.quota_of(project), self.used[project]
        if quota.limit is not None and used + ranks > quota.limit:
            message = f"needs {ranks} devices; project {project!r} uses {used} of at most {quota.limit}"
            return QuotaBlock(WaitCause.PROJECT_LIMIT, message, ranks > quota.limit)
        if not self.would_borrow(project, ranks):
            return None
        return self._find_reservation_block(project, ranks, free, capacity) or self._find_non_preemptible_block(
            project, non_preemptible, capacity
        )

    def _find_reservation_block(self, project: str, ranks: int, free: int, capacity: int) -> QuotaBlock | None:
        others = {name: quota for name, quota in self._reserving.items() if name != project}
        kept = sum(max(0, quota.reserved - self.used[name]) for name, quota in others.items())
        if not kept or free - ranks >= kept or free < ranks:
            return None
        quota = self.quota_of(project)
        message = (
            f"needs {ranks} devices; project {project!r} uses {self.used[project]} and is guaranteed "
            f"{quota.guaranteed}; of the {free} free devices, {kept} are reserved for {', '.join(sorted(others))}"
        )
        is_permanent = capacity - ranks < sum(quota.reserved for quota in others.values())
        return QuotaBlock(WaitCause.PROJECT_QUOTA, message, is_permanent and ranks > quota.guaranteed)

    def _find_non_preemptible_block(self, project: str, non_preemptible: int, capacity: int) -> QuotaBlock | None:
        """Check that non-preemptible ranks borrow only devices that no project is guaranteed."""
        guaranteed = self.quota_of(project).guaranteed
        more = max(0, self._non_preemptible[project] + non_preemptible - guaranteed)
        if not non_preemptible or not more:
            return None
        loose = sum(
            max(0, held - self.quota_of(name).guaranteed)
            for name, held in self._non_preemptible.items()
            if name != project
        )
        unpromised = max(0, capacity - self.total_guaranteed)
        if loose + more <= unpromised:
            return None
        message = (
            f"{non_preemptible} of its devices cannot be preempted, and project {project!r} uses "
            f"{self._non_preemptible[project]} such devices of {guaranteed} guaranteed; {max(0, unpromised - loose)} "
            "devices are not guaranteed to any project. "
            "With `preemptibility: full` the job may borrow more"
        )
        return QuotaBlock(WaitCause.PROJECT_QUOTA, message, non_preemptible - guaranteed > unpromised)


_NONE = Quota()
