"""Prometheus metrics of the control plane, read from the database at each scrape. A restart neither loses nor repeats
counts, except those of the tasks of this process.

The history of each job that has not ended is folded into an account, which is retained between scrapes. A scrape reads
only new events, and the stored sums over all jobs that have ended.
"""

import asyncio
import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from regroup import __version__
from regroup.service.cluster_state.budgets import project_budget_of
from regroup.service.cluster_state.clusters import list_clusters
from regroup.service.cluster_state.job_account import RESTORE_SOURCES, JobAccount
from regroup.service.cluster_state.node_health import closed
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.cluster_state.shared_spares import shared_spare_nodes
from regroup.service.domain.credentials.keyring import KeyringError, Keys, no_keys
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.limits import Limit
from regroup.service.domain.states import JobState
from regroup.service.observability import metric_names as names
from regroup.service.observability.job_accounts import JobAccounts
from regroup.service.observability.job_predictions import JobPredictions
from regroup.service.observability.job_series import render_job_series
from regroup.service.observability.job_totals import NOTES_COUNTED, bound_label, sum_name
from regroup.service.observability.metric_names import Metric
from regroup.service.policy.detection.node_quarantine import NodeHealth, QuarantinePolicy, assess_nodes
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.usage.budget import measure_use
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.clusters import ONE_CLUSTER, ClusterNames
from regroup.service.spec.prices import PriceTable
from regroup.service.store.hooks.deliveries import HOOK_ATTEMPTS, OUTCOMES, Backlog
from regroup.service.store.jobs.totals import REMOVED_ROWS, RETAINED_TABLES
from regroup.service.store.rows.records import (
    NODES_REQUESTED,
    PLATFORM_FAULT,
    ProjectRow,
)
from regroup.service.store.rows.sums import SampleKey, Sums, Totals
from regroup.service.store.secrets.reencryption import PLAIN
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks

Sample = tuple[Sequence[str], float]
_log = structlog.get_logger(__name__)


class Metrics:
    """Renders `/metrics`."""

    def __init__(
        self,
        store: Store,
        rule: QuarantinePolicy,
        clock: Callable[[], float] = time.time,
        cluster: Cluster | None = None,
        tasks: ServerTasks | None = None,
        blob_bytes: Callable[[], int | None] = lambda: None,
        local_node_starts: Callable[[], Mapping[str, int]] = dict,
        prices: PriceTable | None = None,
        refusals: Mapping[Limit, int] | None = None,
        keys: Keys = no_keys,
        *,
        jobs_isolated: bool = False,
        cluster_names: ClusterNames = ONE_CLUSTER,
    ) -> None:
        """Create the renderer.

        Args:
            rule: quarantine policy, for the scores of nodes.
            cluster: source of the nodes for the metric of shared spares; None omits the number of ready spares.
            tasks: tasks of this server.
            blob_bytes: returns the size of all code archives; None while it is unknown.
            local_node_starts: returns the starts of lost local nodes by outcome; empty where regroup starts none.
            prices: price table, for budgets in money.
            refusals: number of requests that each limit refused.
            keys: returns the keys of stored secrets.
            jobs_isolated: True if each job runs as a user of its own.
            cluster_names: names of the clusters.
        """
        self._store, self._cluster = store, cluster
        self._rule = rule
        self._clock = clock
        self._tasks = tasks or ServerTasks()
        self._blob_bytes, self._local_node_starts, self._prices = blob_bytes, local_node_starts, prices
        self._refusals: Mapping[Limit, int] = {} if refusals is None else refusals
        self._keys = keys
        self._jobs_isolated, self._cluster_names = jobs_isolated, cluster_names
        self._accounts, self._predictions = JobAccounts(store), JobPredictions(store)
        self._probes = ProbeResults()
        self._one_at_a_time = asyncio.Lock()

    async def render(self) -> bytes:
        """Render all metrics in Prometheus text format. Without the database, only those of this process."""
        families = list(_of_server(self._tasks))
        families.append(_gauge(names.JOBS_ISOLATED, [((), float(self._jobs_isolated))]))
        blob_bytes = self._blob_bytes()
        families.append(_gauge(names.BLOB_BYTES, [] if blob_bytes is None else [((), float(blob_bytes))]))
        starts = self._local_node_starts().items()
        families.append(_counter(names.LOCAL_NODE_STARTS, [((outcome,), float(count)) for outcome, count in starts]))
        refused = [((limit.value,), float(self._refusals.get(limit, 0))) for limit in Limit]
        families.append(_counter(names.LIMIT_REFUSALS, refused))
        series = b""
        async with self._one_at_a_time:
            try:
                of_store, series = await self._of_store()
                families += of_store
            except UnavailableError as error:
                _log.warning("the metrics lack everything that the database holds", error=str(error))
            except Exception as error:  # those of this process show that it lives, and the others are absent
                _log.error("the metrics of the database could not be read", exc_info=error)
        registry = CollectorRegistry()
        registry.register(_Ready(families))
        return await asyncio.to_thread(generate_latest, registry) + series

    async def _of_store(self) -> tuple[list[Family], bytes]:
        """Return the families of the database, and the series of live jobs as text."""
        now = self._clock()
        totals = await self._store.totals.read(now, self._accounts.jobs)
        accounts = await self._accounts.catch_up(totals.uncounted)
        sums = defaultdict[SampleKey, float](float, totals.sums)
        # In a thread: thousands of live jobs take a second. Nothing else uses the accounts at the same time.
        for key, value in (await asyncio.to_thread(self._accounts.sums, now)).items():
            sums[key] += value
        families = list(_families(totals, sums, accounts))
        live = [account for account in accounts if account.job.state.has_allocations]
        predictions = await self._predictions.newest([account.job for account in live])
        series = await asyncio.to_thread(render_job_series, live, predictions, now)
        projects = await self._store.queue.projects()
        families += _of_projects(accounts, projects)
        families.append(await self._budgets([row for row in projects if row.budget], now))
        families.append(_use_of_projects(await self._store.usage.seconds_by_project(now), projects))
        families.append(await self._spares([row for row in projects if row.spares], now))
        families += _of_probes(await self._probes.newest(self._store))
        size = await self._store.audit.size()
        families.append(_counter(names.AUDIT_RECORDS, [((), float(size.sealed))]))
        families.append(_gauge(names.AUDIT_UNSEALED, [((), float(size.unsealed))]))
        families.append(_gauge(names.SESSIONS, [((), float(await self._store.identities.sessions.count(now)))]))
        families += _of_hooks(sums, await self._store.hooks.deliveries.backlog())
        families.append(_of_secrets(self._keys, await self._store.secrets.reencryption.uses_of_keys()))
        families.append(await self._clusters())
        families += _of_nodes(assess_nodes(await self._store.nodes.events(), now, self._rule))
        return families, series

    async def _budgets(self, projects: Sequence[ProjectRow], now: float) -> Family:
        samples = list[Sample]()
        for row in projects:
            if (budget := project_budget_of(row)) is not None:
                used = await self._store.usage.of_project(row.name, budget.since, now=now)
                share = measure_use(budget, used.seconds, used.held, self._prices)
                samples.append(((row.name,), share.used / share.limit))
        return _gauge(names.PROJECT_BUDGET_USED, samples)

    async def _clusters(self) -> Family:
        if self._cluster is None:
            return _gauge(names.CLUSTER_UP, [])
        found = await list_clusters(self._cluster, self._cluster_names)
        return _gauge(names.CLUSTER_UP, [((each.name,), float(not each.problem)) for each in found])

    async def _spares(self, projects: Sequence[ProjectRow], now: float) -> Family:
        samples = [((row.name, "desired"), float(row.spares)) for row in projects]
        if projects and self._cluster is not None:
            with contextlib.suppress(UnavailableError):  # without the cluster, the number is unknown
                nodes = closed(await self._cluster.nodes(), await self._store.nodes.events(), now, self._rule)
                kept = Counter((await shared_spare_nodes(self._store, nodes)).values())
                samples += [((row.name, "ready"), float(kept[row.name])) for row in projects]
        return _gauge(names.PROJECT_SPARES, samples)


def _of_server(tasks: ServerTasks) -> Iterable[Family]:
    passes = tasks.passes
    yield _gauge(names.BUILD_INFO, [((__version__,), 1.0)])
    last_s = passes.last_at_s()
    yield _gauge(names.LAST_PASS, [] if last_s is None else [((), last_s)])
    yield _gauge(names.PASS_SECONDS, [] if last_s is None else [((), passes.duration_s)])
    yield _counter(names.PASSES_FAILED, [((cause,), float(count)) for cause, count in passes.failed.items()])
    yield _counter(names.JOB_FAULTS, [((), float(passes.job_faults))])
    yield _counter(names.TASK_FAILURES, [((name,), float(count)) for name, count in tasks.failures().items()])


def _families(totals: Totals, sums: Sums, accounts: Sequence[JobAccount]) -> Iterable[Family]:
    yield _gauge(names.JOBS, [((state.value,), count) for state, count in totals.jobs.items()])
    faulty = sum(account.job.platform_fault is not None for account in accounts)
    yield _gauge(names.JOBS_WITH_FAULTS, [((), float(faulty))])
    yield _gauge(names.QUEUE_OLDEST_WAIT, [((), totals.queue_wait_s)])
    for metric in (names.INCIDENTS, names.STEPS_LOST, names.DEVICE_SECONDS):
        yield _counter(metric, _samples(metric.name, sums))
    for metric in (names.CHECKPOINT_WRITTEN, names.CHECKPOINT_WRITE_SECONDS):
        yield _counter(metric, [((), sums.get((metric.name, ()), 0.0))])
    for metric in (names.RESTORED_BYTES, names.RESTORE_NODE_SECONDS):
        yield _counter(metric, [((value,), sums.get((metric.name, (value,)), 0.0)) for value in RESTORE_SOURCES])
    for metric in NOTES_COUNTED:
        yield _counter(metric, [((), sums.get((metric.name, ()), 0.0))])
    for metric, values in ((names.SNAPSHOTS_REFUSED, ("checksum", "replicas")), (names.RESIZES, ("resize", "shrink"))):
        yield _counter(metric, [((value,), sums.get((metric.name, (value,)), 0.0)) for value in values])
    for metric in (names.QUEUE_WAIT, names.RECOVERY, names.RESIZE_GAP, names.CHECKPOINT_SECONDS, names.INSTALL_SECONDS):
        yield _histogram(metric, sums)
    yield _gauge(names.CHECKPOINT_BYTES, [((), totals.checkpoint_bytes)])
    removed = [((table,), sums.get((REMOVED_ROWS, (table,)), 0.0)) for table in RETAINED_TABLES]
    yield _counter(names.ROWS_REMOVED, removed)


def _of_hooks(sums: Sums, backlog: Backlog) -> Iterable[Family]:
    attempts = [((outcome,), sums.get((HOOK_ATTEMPTS, (outcome,)), 0.0)) for outcome in OUTCOMES]
    yield _counter(names.HOOK_ATTEMPTS, attempts)
    yield _gauge(names.HOOK_PENDING, [((), float(backlog.pending))])
    yield _gauge(names.HOOK_UNTRIED, [((), backlog.untried_s)])


def _of_secrets(keys: Keys, uses: Mapping[str, int]) -> Family:
    try:
        keyring = keys()
    except KeyringError:
        keyring = None
    ids = [] if keyring is None else [key.id for key in keyring.keys]
    counts = dict.fromkeys(("current", "former", "missing", "none"), 0)
    for key_id, count in uses.items():
        if key_id == PLAIN:
            counts["none"] += count
        else:
            counts["missing" if key_id not in ids else "former" if key_id != ids[0] else "current"] += count
    return _gauge(names.STORED_SECRETS, [((key,), float(count)) for key, count in counts.items()])


def _samples(name: str, sums: Sums) -> list[tuple[tuple[str, ...], float]]:
    """Return the samples of a metric, sorted by label."""
    return sorted((labels, value) for (metric, labels), value in sums.items() if metric == name)


def _of_nodes(healths: Mapping[str, NodeHealth]) -> Iterable[Family]:
    """Yield the health of nodes that had events. Other nodes have no series."""
    touched = {node: health for node, health in sorted(healths.items()) if health != NodeHealth()}
    yield _gauge(names.NODE_SCORE, [((node,), health.score) for node, health in touched.items()])
    quarantined = [((node,), float(health.quarantined_until_s is not None)) for node, health in touched.items()]
    yield _gauge(names.NODE_QUARANTINED, quarantined)
    yield _gauge(names.NODE_CORDONED, [((node,), float(health.cordon is not None)) for node, health in touched.items()])


def _of_probes(probes: Sequence[ProbeResult]) -> Iterable[Family]:
    levels = [(probe.kind, level) for probe in probes for level in probe.levels]
    yield _gauge(names.PROBE_TIME, [((probe.kind,), probe.time_s) for probe in probes])
    yield _gauge(names.PROBE_BANDWIDTH, [((kind, each.level.value), each.bytes_s) for kind, each in levels])
    yield _gauge(names.PROBE_LATENCY, [((kind, each.level.value), each.latency_s) for kind, each in levels])
    products = [(probe.kind, node, dtype) for probe in probes for node in probe.nodes for dtype in node.flops]
    yield _gauge(names.PROBE_FLOPS, [((kind, node.name, dtype), node.flops[dtype]) for kind, node, dtype in products])
    anomalies = [
        (probe.kind, what, [each for each in probe.anomalies if each.kind == what])
        for probe in probes
        for what in _ANOMALY_KINDS
    ]
    yield _gauge(names.PROBE_ANOMALIES, [((kind, what), float(len(found))) for kind, what, found in anomalies])


_ANOMALY_KINDS = ("node", "link")


def _of_projects(accounts: Sequence[JobAccount], projects: Sequence[ProjectRow]) -> Iterable[Family]:
    waiting, held = Counter[tuple[str, str]](), Counter[str]()
    for account in accounts:
        job = account.job
        if job.state is JobState.QUEUED:
            unmet = (each.reason for each in job.conditions if not each.status or each.type == PLATFORM_FAULT)
            waiting[job.project, next(unmet, "not_evaluated")] += 1
        elif job.state.has_allocations:
            held[job.project] += account.world_size + account.spare_devices
    requested = [each for account in accounts for each in account.job.conditions if each.type == NODES_REQUESTED]
    yield _gauge(names.QUEUE_REQUESTED, [((), float(len(requested)))])
    yield _gauge(names.QUEUE_JOBS, [(labels, float(count)) for labels, count in sorted(waiting.items())])
    by_name = {row.name: row for row in projects}
    samples = [((name, "held"), float(held[name])) for name in sorted({*by_name, *held})]
    samples += [((name, "guaranteed"), float(row.guaranteed)) for name, row in by_name.items()]
    samples += [((name, "limit"), float(row.limit)) for name, row in by_name.items() if row.limit is not None]
    yield _gauge(names.PROJECT_DEVICES, samples)


def _use_of_projects(seconds: Mapping[str, float], projects: Sequence[ProjectRow]) -> Family:
    """Return the use of the projects that an operator set up. Others are left out: members could name many."""
    return _counter(names.PROJECT_DEVICE_SECONDS, [((row.name,), seconds.get(row.name, 0.0)) for row in projects])


def _gauge(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _counter(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, sums: Sums) -> Family:
    """Return a histogram. One without labels exists before the first observation."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    found = {labels for name, labels in sums if name == sum_name(metric)}
    if not metric.labels:
        found.add(())
    bounds = [bound_label(bound) for bound in (*metric.buckets, math.inf)]
    for labels in sorted(found):
        buckets = [(bound, sums.get((metric.name, (*labels, bound)), 0.0)) for bound in bounds]
        family.add_metric(labels, buckets, sum_value=sums.get((sum_name(metric), labels), 0.0))
    return family


@dataclass(frozen=True, eq=False)  # the registry keeps it in a dict
class _Ready:
    """Families of one scrape, as a collector of prometheus_client."""

    families: Sequence[Family]

    def collect(self) -> Iterable[Family]:
        return self.families
