"""The connections and caches that a leading controller shares with its reconcilers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.service.cluster_state.account_reads import AccountReader
from regroup.service.cluster_state.budgets import BudgetReader
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.free_capacity import FreeCapacity
from regroup.service.cluster_state.node_health import NodeHealth, rule_of
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.cluster_state.secrets import SecretReader
from regroup.service.controller.job_faults import JobFaults
from regroup.service.controller.refused_placements import RefusedPlacements
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.policy.sync_pace import SyncPace
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings
from regroup.service.store.rows.records import Condition, JobRow, Lease
from regroup.service.store.store import Store


@dataclass(frozen=True)
class LeaderContext:
    """Valid while the controller holds its lease."""

    lease: Lease
    store: Store
    cluster: Cluster
    settings: Settings
    clock: Callable[[], float]
    """Unix seconds, for what is stored."""
    drain_notices: DrainNotices
    """Nodes that are about to leave."""
    quota_headroom: QuotaHeadroom
    """Devices that running jobs may still get."""
    free_capacity: FreeCapacity
    """Nodes that running jobs could grow into."""
    faults: JobFaults
    """Failures while one job is handled."""
    refused_placements: RefusedPlacements
    """Jobs whose devices the cluster refused."""
    budgets: BudgetReader
    """Use of the budgets of jobs and projects."""
    secrets: SecretReader
    """Secrets of projects."""
    accounts: AccountReader
    """Accounts of live jobs."""
    pace: SyncPace = field(default_factory=SyncPace)
    """Intervals between the checks of live jobs."""

    @property
    def health(self) -> NodeHealth:
        """Nodes that may be used, and their faults."""
        return NodeHealth(self.lease, self.store, self.cluster, rule_of(self.settings))

    async def move(self, job: JobRow, target: JobState, reason: Reason, message: str = "", **options: Any) -> JobRow:
        """Write a state change, if the job still is in the state of `job`."""
        transition = check_transition(job.id, job.state, target, reason, message)
        return await self.store.apply(self.lease, transition, now=self.clock(), **options)

    async def set_condition(self, job_id: str, condition_type: str, condition: Condition | None, now: float) -> None:
        """Replace the job's condition of this type, or remove it."""
        job = await self.store.job(job_id)  # others may have written conditions since the caller read the row
        desired = [] if condition is None else [condition]
        before = [each for each in job.conditions if each.type == condition_type]
        if [replace(each, last_transition_time=0.0) for each in before] != desired:
            others = [each for each in job.conditions if each.type != condition_type]
            await self.store.set_conditions(self.lease, job_id, (*others, *desired), now=now)

    async def set_conditions(self, job: JobRow, conditions: Sequence[Condition]) -> None:
        """Replace all conditions of the job, if they differ."""
        before = [replace(each, last_transition_time=0.0) for each in job.conditions]
        if before != [replace(each, last_transition_time=0.0) for each in conditions]:
            await self.store.set_conditions(self.lease, job.id, conditions, now=self.clock())
