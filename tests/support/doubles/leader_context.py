"""The context of a leading controller, for tests that run one reconciler."""

import time
from typing import Any

from regroup.service.cluster_state.account_reads import AccountReader
from regroup.service.cluster_state.budgets import BudgetReader
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.free_capacity import FreeCapacity
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.cluster_state.secrets import SecretReader
from regroup.service.controller.job_faults import JobFaults
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.refused_placements import RefusedPlacements
from regroup.service.domain.credentials.keyring import no_keys
from regroup.service.settings import Settings
from regroup.service.spec.prices import read_prices
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store
from regroup.service.tasks.pass_record import PassRecord
from tests.support.doubles.fake_cluster import FakeCluster


def leader_context(store: Store, lease: Lease, cluster: FakeCluster | None = None, **settings: Any) -> LeaderContext:
    """Return a context with its own caches."""
    used, used_settings = cluster or FakeCluster(), Settings(**settings)
    return LeaderContext(
        lease,
        store,
        used,
        used_settings,
        time.time,
        DrainNotices(store, used),
        QuotaHeadroom(store),
        FreeCapacity(store),
        JobFaults(store, lease, time.time, PassRecord()),
        RefusedPlacements(time.time),
        BudgetReader(store, read_prices(used_settings.prices)),
        SecretReader(store, no_keys),
        AccountReader(store),
    )
