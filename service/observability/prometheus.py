"""Prometheus metrics of the control plane, read from the database at each scrape. A restart neither loses nor repeats
counts.

Each job's history is folded into an account, which is retained between scrapes. A scrape reads only new events, and
none of jobs that have ended.
"""

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from regroup import __version__
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.node_health import closed
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.cluster_state.shared_spares import shared_spare_nodes
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.observability import metric_names as names
from regroup.service.observability.metric_names import Metric
from regroup.service.policy.accounting import device_seconds, goodput, queue_waits, steps_lost
from regroup.service.policy.detection.node_quarantine import NodeHealth, QuarantinePolicy, assess_nodes
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import MIRRORED, NODES_REQUESTED, WELL_USED, JobFilter, JobRow, ProjectRow, Totals
from regroup.service.store.store import Store

_PAGE = 200
_SPARE = "spare"
"""Class of device-seconds of spare nodes."""
Sample = tuple[Sequence[str], float]


class Metrics:
    """Renders `/metrics`."""

    def __init__(
        self,
        store: Store,
        rule: QuarantinePolicy,
        clock: Callable[[], float] = time.time,
        cluster: Cluster | None = None,
    ) -> None:
        """Create the renderer.

        Args:
            rule: quarantine policy, for the scores of nodes.
            cluster: source of the nodes for the metric of shared spares; None omits the number of ready spares.
        """
        self._store, self._cluster = store, cluster
        self._rule = rule
        self._clock = clock
        self._accounts: dict[str, JobAccount] = {}
        self._probes = ProbeResults()
        self._one_at_a_time = asyncio.Lock()

    async def render(self) -> bytes:
        """Render all metrics in Prometheus text format.

        Raises:
            UnavailableError: the database does not answer.
        """
        async with self._one_at_a_time:
            await self._catch_up()
            now = self._clock()
            families = list(_families(await self._store.totals(now), list(self._accounts.values()), now))
            live = [account.job for account in self._accounts.values() if account.job.state.has_allocations]
            families += _of_predictions(live, await self._store.predictions.newest([job.id for job in live]))
            projects = await self._store.queue.projects()
            families += _of_projects(list(self._accounts.values()), projects)
            families.append(await self._spares([row for row in projects if row.spares], now))
            families += _of_probes(await self._probes.newest(self._store))
            families += _of_nodes(assess_nodes(await self._store.nodes.events(), now, self._rule))
        registry = CollectorRegistry()
        registry.register(_Ready(families))
        return generate_latest(registry)

    async def _spares(self, projects: Sequence[ProjectRow], now: float) -> Family:
        samples = [((row.name, "desired"), float(row.spares)) for row in projects]
        if projects and self._cluster is not None:
            with contextlib.suppress(UnavailableError):  # without the cluster, the number is unknown
                nodes = closed(await self._cluster.nodes(), await self._store.nodes.events(), now, self._rule)
                kept = Counter((await shared_spare_nodes(self._store, nodes)).values())
                samples += [((row.name, "ready"), float(kept[row.name])) for row in projects]
        return _gauge(names.PROJECT_SPARES, samples)

    async def _catch_up(self) -> None:
        after: str | None = None
        while True:
            page = await self._store.page(JobFilter(), after, _PAGE)
            for job in page.jobs:
                account = self._accounts.setdefault(job.id, JobAccount(job))
                await account.catch_up(self._store, job)
            after = page.next_after
            if after is None:
                return


def _families(totals: Totals, accounts: Sequence[JobAccount], now: float) -> Iterable[Family]:
    incidents = [incident for account in accounts for incident in account.incidents.values()]
    yield _gauge(names.BUILD_INFO, [((__version__,), 1.0)])
    yield _gauge(names.JOBS, [((state.value,), count) for state, count in totals.jobs.items()])
    yield _gauge(names.QUEUE_OLDEST_WAIT, [((), totals.queue_wait_s)])
    yield _histogram(names.QUEUE_WAIT, {(): [wait for account in accounts for wait in queue_waits(account.timeline)]})
    yield _counter(names.INCIDENTS, [((cause,), count) for cause, count in totals.incidents.items()])
    lost = steps_lost(incidents)
    yield _counter(names.STEPS_LOST, [((cause,), lost[cause]) for cause in sorted(lost)])
    for metric, kind in _NOTES_COUNTED:
        yield _counter(metric, [((), sum(account.notes[kind] for account in accounts))])
    refused = sum((Counter(account.snapshots_refused) for account in accounts), Counter[str]())
    yield _counter(names.SNAPSHOTS_REFUSED, [((why,), refused[why]) for why in ("checksum", "replicas")])
    yield _histogram(names.RECOVERY, _phases(incidents))
    sizes = Counter(str(incident["recovery_action"]) for incident in incidents)
    yield _counter(names.RESIZES, [((action,), sizes[action]) for action in ("resize", "shrink")])
    planned = [each for each in incidents if each["recovery_action"] == "resize" and each["reason"] == Reason.RESIZED]
    gaps = [each["durations"]["total"] for each in planned if "total" in (each.get("durations") or {})]
    yield _histogram(names.RESIZE_GAP, {(): gaps})
    yield _gauge(names.CHECKPOINT_BYTES, [((), totals.checkpoint_bytes)])
    durations = [seconds for account in accounts for seconds in account.checkpoint_seconds]
    yield _histogram(names.CHECKPOINT_SECONDS, {(): durations})
    installs = [seconds for account in accounts for seconds in account.install_seconds]
    yield _histogram(names.INSTALL_SECONDS, {(): installs})
    yield _counter(names.DEVICE_SECONDS, _device_seconds(accounts, now))
    live = [account for account in accounts if account.job.state.has_allocations]
    for metric, value in _OF_A_JOB:
        found = [(account.job, value(account, now)) for account in live]
        yield _gauge(metric, [((job.id, job.name, job.project), number) for job, number in found if number is not None])


_NOTES_COUNTED: Sequence[tuple[Metric, str]] = (
    (names.STEPS_SKIPPED, "step_skipped"),
    (names.LOSS_SPIKES, "loss_spike"),
    (names.CHECKPOINTS_FAILED, "checkpoint_failed"),
    (names.CLOCKS_SET, "clock_set"),
    (names.STALE_CALLS, "stale"),
)
"""Counter → kind of the notes that it counts."""
_OF_A_JOB: Sequence[tuple[Metric, Callable[[JobAccount, float], float | None]]] = (
    (names.JOB_STEP, lambda account, _: account.job.step),
    (names.JOB_STEPS, lambda account, _: account.job.steps),
    (names.JOB_LOSS, lambda account, _: account.job.loss),
    (names.JOB_VALIDATION_LOSS, lambda account, _: account.job.validation_loss),
    (names.JOB_TOKENS, lambda account, _: account.job.tokens_per_s),
    (names.JOB_STEP_SECONDS, lambda account, _: account.job.step_duration_s),
    (names.JOB_GENERATION, lambda account, _: account.job.generation),
    (names.JOB_WORLD_SIZE, lambda account, _: account.world_size),
    (names.JOB_GOODPUT, lambda account, now: goodput(account.seconds(now))),
    (names.JOB_MFU, lambda account, _: account.job.mfu),
    (names.JOB_EXPOSED, lambda account, _: account.job.exposed_communication),
    (names.JOB_PEAK_BYTES, lambda account, _: account.job.peak_bytes),
    (names.JOB_IDLE, lambda account, _: account.job.pipeline_idle),
    (names.JOB_MIRRORED, lambda account, _: account.job.mirrored_step),
    (names.JOB_MIRROR_SETS, lambda account, _: _mirror_sets(account.job)),
    (names.JOB_STRAGGLERS, lambda account, _: account.stragglers),
    (names.JOB_LOW_USE, lambda account, _: any(each.type == WELL_USED for each in account.job.conditions)),
)


def _mirror_sets(job: JobRow) -> float | None:
    """Return the number of mirror sets of a job; None if it has reported no mirrors."""
    fewer = next((each.reason for each in job.conditions if each.type == MIRRORED), None)
    if fewer is None:
        return None if job.mirrored_step is None else 2.0
    return 0.0 if fewer == "no_mirror" else 1.0


_PREDICTED = {
    names.JOB_STEP_SECONDS_PREDICTED: "step_s",
    names.JOB_PEAK_BYTES_PREDICTED: "peak_bytes",
    names.JOB_IDLE_PREDICTED: "bubble",
}


def _of_predictions(live: Sequence[JobRow], predictions: Mapping[str, Mapping[str, Any]]) -> Iterable[Family]:
    """Yield the predictions of live jobs that have some."""
    for metric, figure in _PREDICTED.items():
        found = [(job, predictions.get(job.id, {}).get(figure)) for job in live]
        yield _gauge(metric, [((job.id, job.name, job.project), value) for job, value in found if value is not None])


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
            unmet = (each.reason for each in job.conditions if not each.status)
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


def _phases(incidents: Iterable[dict[str, Any]]) -> dict[Sequence[str], list[float]]:
    observed: dict[Sequence[str], list[float]] = {}
    for incident in incidents:
        if incident.get("reason") == Reason.SUSPENDED:
            continue  # users choose the duration of a suspension
        for phase, seconds in (incident.get("durations") or {}).items():
            if seconds is not None:
                observed.setdefault((str(phase),), []).append(float(seconds))
    return observed


def _device_seconds(accounts: Iterable[JobAccount], now: float) -> list[Sample]:
    sums: dict[tuple[str, str], float] = {}
    for account in accounts:
        device = str(account.job.spec["resources"]["device"])
        for kind, seconds in device_seconds(account.seconds(now), account.world_size).items():
            sums[kind.value, device] = sums.get((kind.value, device), 0.0) + seconds
        if spare_s := account.spare_device_seconds(now):
            sums[_SPARE, device] = sums.get((_SPARE, device), 0.0) + spare_s
    return list(sums.items())


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


def _histogram(metric: Metric, observed: dict[Sequence[str], list[float]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, values in observed.items():
        bounds = (*metric.buckets, math.inf)
        buckets = [(_bound(bound), float(sum(value <= bound for value in values))) for bound in bounds]
        family.add_metric(labels, buckets, sum_value=sum(values))
    return family


def _bound(value: float) -> str:
    return "+Inf" if math.isinf(value) else str(value)


@dataclass(frozen=True, eq=False)  # the registry keeps it in a dict
class _Ready:
    """Families of one scrape, as a collector of prometheus_client."""

    families: Sequence[Family]

    def collect(self) -> Iterable[Family]:
        return self.families
