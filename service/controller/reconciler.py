"""The protocol of what a controller drives for a live job."""

from typing import Protocol

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.ports.sync import NO_INTENTS, Intents, SupervisorStatus
from regroup.service.store.rows.records import JobRow


class Reconciler(Protocol):
    """One aspect of a live job. It is driven to its desired state once per sync with the job's supervisor."""

    def concerns(self, job: JobRow, allocations: JobAllocations) -> bool:
        """Return whether a change is requested or in progress; then the supervisor is polled more often."""
        return False

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the requests to the supervisor."""
        return NO_INTENTS

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Compare the desired with the observed state, and change allocations or requests.

        Raises:
            PreconditionError: Another controller leads.
            UnavailableError: The cluster or the database does not answer.
        """
