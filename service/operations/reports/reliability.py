"""The use case of the reliability report: incidents, faults of nodes and goodput in a window of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.decision import projects_with
from regroup.service.policy.access.roles import Permission
from regroup.service.policy.reliability import IncidentReport, NodeFaults, mean_goodput, rank_nodes, report_incidents
from regroup.service.store.store import Store
from regroup.service.store.usage import Group, UsageSelection

USUAL_WINDOW_S = 30 * 86_400.0
_HOUR_S = 3600.0
_MOST_INCIDENTS = 10_000
_MOST_JOBS = 10_000
_MOST_FAULTS = 10_000
_MOST_NODES = 50


@dataclass(frozen=True)
class ReliabilityReport:
    """Reliability of all jobs that the sender sees, in a window."""

    from_s: float
    to_s: float
    incidents: int
    is_partial: bool
    """True if the window has more incidents or jobs than the report reads: the oldest incidents are missing."""
    found: IncidentReport
    nodes: Sequence[NodeFaults]
    goodput: float | None
    """Mean goodput of the jobs that held devices in the window, by device-hours; None if it is not known."""
    device_hours: float


class Reliability:
    """Use cases of the reliability report."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    async def report(
        self, sender: Sender, from_s: float | None, to_s: float | None, project: str | None
    ) -> ReliabilityReport:
        """Report the reliability of what the sender may see.

        Args:
            from_s: start of the window; None for 30 days before its end.
            to_s: end of the window; None for now.
            project: only this project; None for all.

        Raises:
            SpecError: the window ends before it begins.
        """
        now = self._clock()
        until_s = now if to_s is None else min(to_s, now)
        since_s = max(0.0, until_s - USUAL_WINDOW_S) if from_s is None else from_s
        if until_s <= since_s:
            issue = FieldIssue.at(("from",), "must be earlier than the end of the window, and than now", since_s)
            raise SpecError([issue])
        allowed = projects_with(sender.identity, Permission.JOBS_READ)
        if project is not None:
            allowed = frozenset({project} if allowed is None or project in allowed else ())
        found = await self._store.reliability.incidents(since_s, until_s, allowed, _MOST_INCIDENTS + 1)
        held = await self._store.usage.page(
            UsageSelection(since_s, until_s, (Group.JOB,), allowed), None, _MOST_JOBS + 1
        )
        seconds = {each.key[0]: sum(each.seconds.values()) for each in held[:_MOST_JOBS]}
        goodputs = await self._store.reliability.goodputs(seconds)
        faults = await self._store.reliability.node_faults(since_s, until_s, _MOST_FAULTS)
        shown = found[:_MOST_INCIDENTS]
        return ReliabilityReport(
            from_s=since_s,
            to_s=until_s,
            incidents=len(shown),
            is_partial=len(found) > _MOST_INCIDENTS or len(held) > _MOST_JOBS,
            found=report_incidents(shown, since_s, until_s),
            nodes=rank_nodes(faults, _MOST_NODES),
            goodput=mean_goodput((value, goodputs.get(job_id)) for job_id, value in seconds.items()),
            device_hours=sum(seconds.values()) / _HOUR_S,
        )
