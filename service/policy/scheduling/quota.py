"""What projects may hold: a guarantee that is taken back when asked for, what of it may be lent, and a limit.

All numbers count devices, of which a rank holds one, whatever their kind.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class HoldReason(StrEnum):
    """Why a job waits although it is not devices that are missing; reason of its condition `Placeable`."""

    PROJECT_LIMIT = "project_limit"
    """Its project would hold more than its limit."""
    PROJECT_QUOTA = "project_quota"
    """It would need more than its project's guarantee, and the rest cannot be lent to it now."""
    DEPENDENCY = "dependency"
    """Jobs that it comes after have not succeeded yet."""
    PREEMPTION = "preemption"
    """Others shrink or are suspended for it."""


@dataclass(frozen=True)
class Quota:
    """Of one project. Without a row of its own a project has no guarantee and no limit."""

    guaranteed: int = 0
    """Devices that it gets whenever it asks: jobs of others that borrowed them are shrunk or suspended."""
    borrowable: int | None = None
    """How many of the guaranteed others may use while it does not; all if None. The rest is kept free for it."""
    limit: int | None = None
    """The most it may hold; None: what there is."""
    weight: float = 1.0
    """Its share beside others of the same priority, per device held."""

    @property
    def reserved(self) -> int:
        """Devices of the guarantee that are never lent."""
        return 0 if self.borrowable is None else max(0, self.guaranteed - self.borrowable)


@dataclass(frozen=True)
class QuotaHold:
    """Why quotas keep a job waiting."""

    reason: HoldReason
    message: str
    is_permanent: bool = False
    """It would be so if nothing ran: only another quota helps."""


class QuotaUsage:
    """Who holds how much, as a look goes on."""

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self._quotas = quotas
        self.used = Counter[str]()
        """Devices held by each project."""
        self._firm = Counter[str]()
        self._keeping = {name: quota for name, quota in quotas.items() if quota.reserved}
        self.total_guaranteed = sum(quota.guaranteed for quota in quotas.values())

    def quota_of(self, project: str) -> Quota:
        """The project's quota."""
        return self._quotas.get(project, _NONE)

    def add(self, project: str, ranks: int, firm: int) -> None:
        """The project holds so many more; `firm` of them cannot be taken back."""
        self.used[project] += ranks
        self._firm[project] += firm

    def would_borrow(self, project: str, ranks: int) -> bool:
        """Whether it would hold more than its guarantee with so many more. Where nobody has one, nobody borrows."""
        return self.total_guaranteed > 0 and self.used[project] + ranks > self.quota_of(project).guaranteed

    def borrowed(self, project: str) -> int:
        """What it holds beyond its guarantee."""
        return self.used[project] - self.quota_of(project).guaranteed

    def weighted_share(self, project: str) -> float:
        """Devices held, by weight: whose is smaller comes first."""
        return self.used[project] / self.quota_of(project).weight

    def find_hold(self, project: str, ranks: int, firm: int, *, free: int, capacity: int) -> QuotaHold | None:
        """Why a job may not take so many, or None.

        Args:
            firm: those of its ranks that could not be taken back.
            free: ranks of the job's kind that fit now.
            capacity: that would fit if nothing ran.
        """
        quota, used = self.quota_of(project), self.used[project]
        if quota.limit is not None and used + ranks > quota.limit:
            message = f"needs {ranks} devices; project {project!r} holds {used} of at most {quota.limit}"
            return QuotaHold(HoldReason.PROJECT_LIMIT, message, ranks > quota.limit)
        if not self.would_borrow(project, ranks):
            return None
        return self._unlent(project, ranks, free, capacity) or self._too_firm(project, firm, capacity)

    def _unlent(self, project: str, ranks: int, free: int, capacity: int) -> QuotaHold | None:
        others = {name: quota for name, quota in self._keeping.items() if name != project}
        kept = sum(max(0, quota.reserved - self.used[name]) for name, quota in others.items())
        if not kept or free - ranks >= kept or free < ranks:
            return None
        quota = self.quota_of(project)
        message = (
            f"needs {ranks} devices; project {project!r} holds {self.used[project]} and is guaranteed "
            f"{quota.guaranteed}; of the {free} that are free, {kept} are kept for {', '.join(sorted(others))}"
        )
        for_ever = capacity - ranks < sum(quota.reserved for quota in others.values())
        return QuotaHold(HoldReason.PROJECT_QUOTA, message, for_ever and ranks > quota.guaranteed)

    def _too_firm(self, project: str, firm: int, capacity: int) -> QuotaHold | None:
        """What cannot be taken back may borrow only what nobody is guaranteed."""
        guaranteed = self.quota_of(project).guaranteed
        more = max(0, self._firm[project] + firm - guaranteed)
        if not firm or not more:
            return None
        loose = sum(
            max(0, held - self.quota_of(name).guaranteed) for name, held in self._firm.items() if name != project
        )
        unpromised = max(0, capacity - self.total_guaranteed)
        if loose + more <= unpromised:
            return None
        message = (
            f"{firm} of its devices could not be taken back, and project {project!r} holds {self._firm[project]} such "
            f"of {guaranteed} guaranteed; {max(0, unpromised - loose)} are guaranteed to nobody. "
            "`preemptibility: full` may borrow more"
        )
        return QuotaHold(HoldReason.PROJECT_QUOTA, message, firm - guaranteed > unpromised)


_NONE = Quota()
