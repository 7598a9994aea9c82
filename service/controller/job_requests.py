"""Requests of people and the queue to a live job: end, release the nodes, keep checkpoints."""

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.preemption import requeue_change
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.states import Reason
from regroup.service.ports.sync import EndRequest, Intents, PinnedCheckpoint, SupervisorStatus
from regroup.service.store.rows.records import JobRow


class JobRequestReconciler(Reconciler):
    """Forwards the intents of a job's row to its supervisor, and ends a job that exceeds `max_duration`."""

    def __init__(self, leader: LeaderContext) -> None:
        self._clock = leader.clock

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the requests that stand now."""
        return Intents(
            cancel=bool(job.intents.get("cancel")),
            end=self._end_request(job),
            release=bool(job.intents.get("release")),
            pins=tuple(PinnedCheckpoint(pin["step"], pin["generation"]) for pin in job.intents.get("pins", ())),
            change=requeue_change(job),
        )

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Do nothing: the supervisor acts on the intents."""

    def _end_request(self, job: JobRow) -> EndRequest | None:
        limit_s = job.spec.get("max_duration")
        if limit_s is None or job.started_at is None or self._clock() - job.started_at <= limit_s:
            return None
        return EndRequest(Reason.MAX_DURATION, f"the job ran for {limit_s:.0f} s, its max_duration")
