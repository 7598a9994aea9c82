"""Failures of the control plane while it handles one job: each becomes a condition of that job, and stops no other."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from regroup.service.domain.errors import IllegalTransitionError, NotFoundError, PreconditionError, UnavailableError
from regroup.service.store.rows.records import PLATFORM_FAULT, Condition, Lease
from regroup.service.store.store import Store
from regroup.service.tasks.pass_record import PassRecord
from regroup.service.tasks.supervised_task import describe_error

_log = structlog.get_logger(__name__)


class JobFaults:
    """The current failures by job, of one leader. A failure that repeats is logged once, and counted each time."""

    def __init__(self, store: Store, lease: Lease, clock: Callable[[], float], record: PassRecord) -> None:
        self._store, self._lease, self._clock, self._record = store, lease, clock, record
        self._described: dict[str, str] = {}
        """Job id → its failure as it was logged."""

    @asynccontextmanager
    async def isolate(self, job_id: str, doing: str) -> AsyncGenerator[None]:
        """Turn an unexpected error of the block into a condition of the job. See `report` for `doing`.

        Raises:
            PreconditionError: another controller leads.
            UnavailableError: the cluster or the database does not answer.
        """
        try:
            yield
        except (PreconditionError, UnavailableError):
            raise
        except IllegalTransitionError as error:
            _log.info("a job changed while it was handled", job=job_id, error=str(error))
        except Exception as error:
            await self.report(job_id, doing, error)

    async def report(self, job_id: str, doing: str, error: Exception) -> None:
        """Log and count a failure, and show it as a condition of the job.

        Args:
            doing: Name of the action that failed, for example `to schedule it`.

        Raises:
            PreconditionError: another controller leads.
            UnavailableError: the database does not answer.
        """
        self._record.job_faults += 1
        description = f"the control plane failed {doing}: {describe_error(error)}"
        if self._described.get(job_id) != description:
            self._described[job_id] = description
            _log.error("a job could not be handled", job=job_id, failed=doing, exc_info=error)
        message = f"{description}; it tries again, and other jobs are not affected; please report this"
        try:
            await self._show(job_id, Condition(PLATFORM_FAULT, True, "control_plane_fault", message))
        except (PreconditionError, UnavailableError):
            raise
        except Exception as failed:  # the log has the first error
            _log.error("the condition of a failure could not be stored", job=job_id, exc_info=failed)

    def retain(self, job_ids: set[str]) -> None:
        """Forget the failures of all other jobs."""
        self._described = {job_id: text for job_id, text in self._described.items() if job_id in job_ids}

    async def _show(self, job_id: str, condition: Condition) -> None:
        try:
            job = await self._store.job(job_id)
        except NotFoundError:
            return
        before = job.platform_fault
        if job.damaged or (before is not None and replace(before, last_transition_time=0.0) == condition):
            return  # a damaged record shows a condition of its own
        others = (each for each in job.conditions if each.type != PLATFORM_FAULT)
        await self._store.set_conditions(self._lease, job_id, (*others, condition), now=self._clock())
