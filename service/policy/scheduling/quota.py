"""What projects may hold: a guarantee that is taken back when asked for, what of it may be lent, and a limit.

All numbers count devices, of which a rank holds one, whatever their kind.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Hold(StrEnum):
    """Why a job waits although it is not devices that are missing; reason of its condition `Placeable`."""

    PROJECT_LIMIT = "project_limit"
    """Its project would hold more than its limit."""
    PROJECT_QUOTA = "project_quota"
    """It would need more than its project's guarantee, and the rest cannot be lent to it now."""
    AFTER = "after"
    """Jobs that it comes after have not succeeded yet."""
    MAKING_ROOM = "making_room"
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
    def kept_free(self) -> int:
        """Devices of the guarantee that are never lent."""
        return 0 if self.borrowable is None else max(0, self.guaranteed - self.borrowable)


@dataclass(frozen=True)
class Held:
    """Why quotas keep a job waiting."""

    reason: Hold
    message: str
    is_for_ever: bool = False
    """It would be so if nothing ran: only another quota helps."""


class Books:
    """Who holds how much, as a look goes on."""

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self._quotas = quotas
        self.use = Counter[str]()
        """Devices held by each project."""
        self._firm = Counter[str]()
        self._keeping = {name: quota for name, quota in quotas.items() if quota.kept_free}
        self.guarantees = sum(quota.guaranteed for quota in quotas.values())

    def of(self, project: str) -> Quota:
        """The project's quota."""
        return self._quotas.get(project, _NONE)

    def enter(self, project: str, ranks: int, firm: int) -> None:
        """The project holds so many more; `firm` of them cannot be taken back."""
        self.use[project] += ranks
        self._firm[project] += firm

    def borrows(self, project: str, ranks: int) -> bool:
        """Whether it would hold more than its guarantee with so many more. Where nobody has one, nobody borrows."""
        return self.guarantees > 0 and self.use[project] + ranks > self.of(project).guaranteed

    def excess(self, project: str) -> int:
        """What it holds beyond its guarantee."""
        return self.use[project] - self.of(project).guaranteed

    def share(self, project: str) -> float:
        """Devices held, by weight: whose is smaller comes first."""
        return self.use[project] / self.of(project).weight

    def held(self, project: str, ranks: int, firm: int, *, free: int, capacity: int) -> Held | None:
        """Why a job may not take so many, or None.

        Args:
            firm: those of its ranks that could not be taken back.
            free: ranks of the job's kind that fit now.
            capacity: that would fit if nothing ran.
        """
        quota, used = self.of(project), self.use[project]
        if quota.limit is not None and used + ranks > quota.limit:
            message = f"needs {ranks} devices; project {project!r} holds {used} of at most {quota.limit}"
            return Held(Hold.PROJECT_LIMIT, message, ranks > quota.limit)
        if not self.borrows(project, ranks):
            return None
        return self._unlent(project, ranks, free, capacity) or self._too_firm(project, firm, capacity)

    def _unlent(self, project: str, ranks: int, free: int, capacity: int) -> Held | None:
        others = {name: quota for name, quota in self._keeping.items() if name != project}
        kept = sum(max(0, quota.kept_free - self.use[name]) for name, quota in others.items())
        if not kept or free - ranks >= kept or free < ranks:
            return None
        quota = self.of(project)
        message = (
            f"needs {ranks} devices; project {project!r} holds {self.use[project]} and is guaranteed "
            f"{quota.guaranteed}; of the {free} that are free, {kept} are kept for {', '.join(sorted(others))}"
        )
        for_ever = capacity - ranks < sum(quota.kept_free for quota in others.values())
        return Held(Hold.PROJECT_QUOTA, message, for_ever and ranks > quota.guaranteed)

    def _too_firm(self, project: str, firm: int, capacity: int) -> Held | None:
        """What cannot be taken back may borrow only what nobody is guaranteed."""
        guaranteed = self.of(project).guaranteed
        more = max(0, self._firm[project] + firm - guaranteed)
        if not firm or not more:
            return None
        loose = sum(max(0, held - self.of(name).guaranteed) for name, held in self._firm.items() if name != project)
        unpromised = max(0, capacity - self.guarantees)
        if loose + more <= unpromised:
            return None
        message = (
            f"{firm} of its devices could not be taken back, and project {project!r} holds {self._firm[project]} such "
            f"of {guaranteed} guaranteed; {max(0, unpromised - loose)} are guaranteed to nobody. "
            "`preemptibility: full` may borrow more"
        )
        return Held(Hold.PROJECT_QUOTA, message, firm - guaranteed > unpromised)


_NONE = Quota()
