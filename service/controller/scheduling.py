"""The scheduling pass: read the queue, the running jobs and the nodes, let the policy decide, and request nodes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import structlog

from regroup.service.cluster_state import queue as queue_view
from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.domain.errors import PreconditionError, UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.measurements.hardware_overlay import measured_links
from regroup.service.policy.measurements.results import fabrics_of
from regroup.service.policy.placement.demand import Shortage
from regroup.service.policy.placement.link_speeds import links_for
from regroup.service.policy.placement.unschedulable import describe_lost_nodes
from regroup.service.policy.scheduling.autoscaler_request import Bundle, NodeRequest, build_node_request
from regroup.service.policy.scheduling.decide import DecisionFault, SchedulingDecision, Wait, decide
from regroup.service.policy.scheduling.entries import WaitingJob
from regroup.service.policy.topology.device_islands import with_fabrics
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import NODES_REQUESTED, PLACEABLE, START_ESTIMATED, Condition, JobRow

_FOR_NODES = frozenset({Shortage.NO_NODES, Shortage.TOO_LARGE, Shortage.RESOURCES, Shortage.NODES_CLOSED})
"""Reasons to wait that a lost node may explain."""
_REPEAT_REQUEST_S = 15.0
"""The autoscaler obeys the latest request, and others in the cluster may request nodes, too."""
_DECISION_LIMIT_S = 120.0
_PARSED_AT_ONCE = 50
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="scheduling")
_log = structlog.get_logger(__name__)


class Scheduler:
    """Decides about the queue. It is kept between passes, so that specs are parsed once."""

    def __init__(self) -> None:
        self._specs = queue_view.Specs()
        self._probes = ProbeResults()
        self.request = NodeRequest()
        """The nodes that the jobs of the latest pass wait for; empty if they wait for none."""
        self._lost = ""
        """Lost nodes and the remedy, for jobs that wait for nodes."""

    async def decide(self, leader: LeaderContext, queue: Sequence[JobRow]) -> list[SchedulingDecision]:
        """Return the decisions about the queue. Jobs whose dependency failed are ended.

        A job that cannot be handled gets a `DecisionFault`; running jobs that cannot be read, too.

        Raises:
            UnavailableError: The cluster or the database does not answer.
        """
        store, settings, now = leader.store, leader.settings, leader.clock()
        live, rows = await store.live.rows(), await store.live.all_allocations()
        probes = await self._probes.newest(store)
        nodes = without_allocated(with_fabrics(await leader.health.nodes(now), fabrics_of(probes)), rows)
        self._specs.retain([*queue, *live])
        waiting, faults = await self._waiting(leader, queue, now)
        running = queue_view.held(live, rows, self._specs, now=now, faults=faults)
        quotas = queue_view.quotas_of(await store.queue.projects())
        by_kind = {probe.kind: probe for probe in probes}
        measured = {kind: measured_links(links_for(kind), probe) for kind, probe in by_kind.items()}
        rule = replace(queue_view.rule_of(settings), links=measured)
        decisions = await _run(partial(decide, waiting, nodes, running, quotas, now_s=now, rule=rule))
        lost = await leader.cluster.lost_nodes() if any(isinstance(each, Wait) for each in decisions) else ()
        self._lost = describe_lost_nodes(lost, is_local=settings.has_local_ray, restarts=settings.restart_local_nodes)
        if settings.autoscale:
            by_id = {job.job_id: job for job in waiting}
            waits = [(by_id[each.job_id], each.why.reason) for each in decisions if isinstance(each, Wait)]
            self.request = build_node_request(waits, running, now_s=now, after_s=settings.autoscale_after_s)
        return [*decisions, *(DecisionFault(job_id, error) for job_id, error in faults.items())]

    async def _waiting(
        self, leader: LeaderContext, queue: Sequence[JobRow], now: float
    ) -> tuple[list[WaitingJob], dict[str, Exception]]:
        """Return the jobs that wait, and the errors of those that cannot be read, by job id."""
        waiting, faults = list[WaitingJob](), dict[str, Exception]()
        start_s = leader.settings.gang_timeout_s
        for number, job in enumerate(queue, 1):
            if number % _PARSED_AT_ONCE == 0:
                await asyncio.sleep(0)  # requests come between new specs
            try:
                if (after := await _unmet_dependencies(leader, job)) is not None:
                    waiting.append(queue_view.waiting(job, self._specs, after=after, now=now, start_s=start_s))
            except (PreconditionError, UnavailableError):
                raise
            except Exception as error:
                faults[job.id] = error
        return waiting, faults

    def conditions(self, wait: Wait) -> tuple[Condition, ...]:
        """Return why a job waits, as conditions."""
        lost = self._lost if wait.why.reason in _FOR_NODES else ""
        conditions = [Condition(PLACEABLE, False, wait.why.reason.value, f"{wait.why.message}{lost}")]
        if wait.start_s is not None:
            start = datetime.fromtimestamp(wait.start_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
            conditions.append(Condition(START_ESTIMATED, True, "promised", start))
        if wait.job_id in self.request.jobs:
            message = "nodes for the job were requested from the autoscaler"
            conditions.append(Condition(NODES_REQUESTED, True, "autoscaler", message))
        return tuple(conditions)


class AutoscalerRequests:
    """Requests the nodes that jobs wait for from the autoscaler, and withdraws the request when none waits."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._requested: Sequence[Bundle] | None = None
        """None: the request of an earlier control plane is unknown."""
        self._requested_s = 0.0

    async def submit(self, request: NodeRequest) -> None:
        """Submit the request if it differs from the last one or is due again. An empty request is submitted once.

        Raises:
            UnavailableError: The cluster does not answer.
        """
        is_new = request.bundles != self._requested
        if not is_new and not (request.bundles and self._clock() - self._requested_s > _REPEAT_REQUEST_S):
            return
        await self._cluster.request_nodes(request.bundles)
        if is_new:
            _log.info("requested nodes from the autoscaler", bundles=len(request.bundles), jobs=sorted(request.jobs))
        self._requested, self._requested_s = request.bundles, self._clock()


async def _run(decide_all: Callable[[], list[SchedulingDecision]]) -> list[SchedulingDecision]:
    """Decide in the thread of the scheduler: with thousands of jobs that takes a large part of a second.

    Other threads may wait for storage that hangs.

    Raises:
        RuntimeError: it did not finish in time.
    """
    deciding = asyncio.get_running_loop().run_in_executor(_THREAD, decide_all)
    done, _ = await asyncio.wait({deciding}, timeout=_DECISION_LIMIT_S)
    if not done:
        raise RuntimeError(f"the decision about the queue did not finish within {_DECISION_LIMIT_S:.0f} s")
    return deciding.result()


async def _unmet_dependencies(leader: LeaderContext, job: JobRow) -> Sequence[str] | None:
    """Return the names of the jobs that it still waits for; None if one of them failed, and this job with it."""
    if not (after := job.spec.get("depends_on")):
        return ()
    names, failed = queue_view.unmet(after, {job_id: await leader.store.job(job_id) for job_id in after})
    if failed is None:
        return names
    message = f"job {failed.name!r} ({failed.id}), on which it depends, ended {failed.state}: {failed.reason}"
    if job.state is JobState.QUEUED:
        await leader.move(job, JobState.FAILED, Reason.DEPENDENCY_FAILED, message)
    return None
