"""The tasks that reconcile the live jobs, one for each job."""

import asyncio
import contextlib
from collections.abc import Iterable, Set

import structlog

from regroup.service.controller.job_reconciler import JobFacts, reconcile_job
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.domain.errors import IllegalTransitionError, PreconditionError, UnavailableError
from regroup.service.store.jobs.jobs import batched
from regroup.service.store.transactions.connection_share import limit_to_share

_STARTED_AT_ONCE = 100
"""Number of tasks that start without a pause."""
_RETRY_S, _RETRY_FAULT_S = 0.5, 1.0
_log = structlog.get_logger(__name__)


class JobTasks:
    """The tasks of one leader. A fault of one job does not affect the others."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def job_ids(self) -> Set[str]:
        """Ids of the jobs that are reconciled now."""
        return self._running.keys()

    def forget_all(self) -> None:
        """Forget the tasks, which have all ended."""
        self._running.clear()

    async def start_all(self, leader: LeaderContext, tasks: asyncio.TaskGroup, live: Iterable[str]) -> None:
        """Start the tasks of all live jobs that have none.

        A new leader reads thousands of jobs with few statements, and starts some of them at a time: the renewal of the
        lease and requests come in between.
        """
        new = [job_id for job_id in live if job_id not in self._running]
        if len(new) > _STARTED_AT_ONCE:
            await leader.store.live.all_allocations()
        for some in batched(new, _STARTED_AT_ONCE):
            mark = leader.store.changes.mark()
            complete, unplanned = set[str](), set[str]()
            if len(some) > 1:
                complete = await leader.store.predictions.complete(some)
                unplanned = await leader.store.predictions.without_plan(some)
            for job in await leader.store.jobs_with_ids(some):
                predicted = job.generation if job.id in complete else 0
                self.start(leader, tasks, JobFacts(job, mark, predicted, job.id not in unplanned))
            await asyncio.sleep(0)

    def start(self, leader: LeaderContext, tasks: asyncio.TaskGroup, facts: JobFacts) -> None:
        """Start the task of a job, unless it has one."""
        job_id = facts.row.id
        if job_id not in self._running:
            self._running[job_id] = tasks.create_task(self._reconcile(leader, job_id, facts))

    async def _reconcile(self, leader: LeaderContext, job_id: str, facts: JobFacts) -> None:
        """Reconcile a job. After a fault, the next pass tries again."""
        limit_to_share()
        try:
            await reconcile_job(leader, facts)
        except PreconditionError:
            raise
        except (UnavailableError, IllegalTransitionError) as error:
            _log.warning("retrying to reconcile a job", job=job_id, error=str(error))
            await asyncio.sleep(_RETRY_S)
        except Exception as error:
            with contextlib.suppress(UnavailableError):  # the next attempt reports it again
                await leader.faults.report(job_id, "to reconcile it", error)
            await asyncio.sleep(_RETRY_FAULT_S)
        finally:
            self._running.pop(job_id, None)
            leader.store.changes.announce(job_id)
