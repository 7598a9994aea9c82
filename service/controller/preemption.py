"""Jobs that must release nodes, for another job or because they are suspended."""

from regroup.service.domain.states import Reason
from regroup.service.policy.scheduling.preemption import Requeue, Shrink
from regroup.service.ports.assignment import PlannedChange
from regroup.service.store.jobs.job_writer import SUSPEND
from regroup.service.store.projects import PREEMPT, RESIZE
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.store import Store

_REASONS = {SUSPEND: Reason.SUSPENDED, PREEMPT: Reason.PREEMPTED}
"""Intents that make a job release all nodes, in the order of precedence."""


async def request_capacity(store: Store, lease: Lease, decision: Shrink | Requeue, *, now: float) -> None:
    """Request that a job shrinks or requeues. Its nodes are free once it has released them."""
    request = {"why": decision.why, "requested_s": now}
    match decision:
        case Shrink():
            # No person chose this size: the job may grow again where there is capacity.
            intent = {RESIZE: {**request, "layout": decision.layout.to_json(), "is_requested": False}}
        case Requeue():
            intent = {PREEMPT: request}
    await store.queue.request_capacity(lease, decision.job_id, intent, now=now)


def requeue_change(job: JobRow) -> PlannedChange | None:
    """Return the change by which a job saves its state and releases all nodes, if that is requested."""
    for name, reason in _REASONS.items():
        if (request := job.intents.get(name)) is not None:
            return PlannedChange({}, request["why"], request["requested_s"], None, is_requeue=True, reason=reason)
    return None
