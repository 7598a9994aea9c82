"""Secrets of projects for jobs: a job starts when they can be read, and its supervisor gets their newest values."""

from collections.abc import Sequence

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.secrets import SECRETS_READABLE, SecretsUnreadableError, names_of
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.ports.sync import Intents, SecretValues, SupervisorStatus
from regroup.service.store.rows.records import Condition, JobRow

_UNREADABLE = "secret_unreadable"


class SecretReconciler(Reconciler):
    """Sends the values of one job's secrets to its supervisor until it has them, and again after each change."""

    def __init__(self, leader: LeaderContext) -> None:
        self._leader = leader
        self._values: SecretValues | None = None
        """Values that the supervisor does not have yet."""

    def intents(self, job: JobRow, allocations: JobAllocations) -> Intents:
        """Return the values that the supervisor does not have yet."""
        return Intents(secrets=self._values)

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Compare the version of the supervisor's values with that of the database."""
        names = names_of(job.spec)
        if not names:
            return
        version = await self._leader.secrets.version(job)
        if status.secrets_version == version:
            if self._values is not None:
                await self._leader.store.secrets.record_use(job.project, names, now=now)
            self._values = None
            await self._show(job, "", now)
        elif self._values is None or self._values.version != version:
            await self._read(job, status, now)

    async def _read(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        try:
            self._values = await self._leader.secrets.read(job)
        except SecretsUnreadableError as error:
            self._values = None
            # A supervisor that has values continues with them.
            await self._show(job, "" if status.secrets_version else str(error), now)
        else:
            await self._show(job, "", now)

    async def _show(self, job: JobRow, problem: str, now: float) -> None:
        if problem or any(condition.type == SECRETS_READABLE for condition in job.conditions):
            condition = Condition(SECRETS_READABLE, False, _UNREADABLE, problem) if problem else None
            await self._leader.set_condition(job.id, SECRETS_READABLE, condition, now)


async def with_readable_secrets(leader: LeaderContext, queue: Sequence[JobRow]) -> list[JobRow]:
    """Return the queued jobs whose secrets can be read. The others wait, and show the problem."""
    problems = await leader.secrets.find_problems(queue)
    for job in queue:
        if job.id in problems:
            async with leader.faults.isolate(job.id, "to store why it waits"):
                await leader.set_conditions(job, (Condition(SECRETS_READABLE, False, _UNREADABLE, problems[job.id]),))
    return [job for job in queue if job.id not in problems]
