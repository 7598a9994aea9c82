"""The scheduling pass: read the queue, the running jobs and the nodes, let the policy decide, and request nodes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from regroup.service.cluster_state import queue as queue_view
from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.measurements.hardware_overlay import measured_links
from regroup.service.policy.measurements.results import fabrics_of
from regroup.service.policy.placement.link_speeds import links_for
from regroup.service.policy.scheduling.autoscaler_request import Bundle, NodeRequest, build_node_request
from regroup.service.policy.scheduling.decide import SchedulingDecision, Wait, decide
from regroup.service.policy.topology.device_islands import with_fabrics
from regroup.service.ports.cluster import Cluster
from regroup.service.store.records import NODES_REQUESTED, START_ESTIMATED, Condition, JobRow

PLACEABLE = "Placeable"
"""Condition of a job that waits: false, with the reason."""
_REPEAT_REQUEST_S = 15.0
"""The autoscaler obeys the latest request, and others in the cluster may request nodes, too."""
_log = structlog.get_logger(__name__)


class Scheduler:
    """Decides about the queue. It is kept between passes, so that specs are parsed once."""

    def __init__(self) -> None:
        self._specs = queue_view.Specs()
        self._probes = ProbeResults()
        self.request = NodeRequest()
        """The nodes that the jobs of the latest pass wait for; empty if they wait for none."""

    async def decide(self, leader: LeaderContext, queue: Sequence[JobRow]) -> list[SchedulingDecision]:
        """Return the decisions about the queue. Jobs whose dependency failed are ended.

        Raises:
            UnavailableError: The cluster or the database does not answer.
        """
        store, settings, now = leader.store, leader.settings, leader.clock()
        live, rows = await store.live_jobs(), await store.live_allocations()
        probes = await self._probes.newest(store)
        nodes = without_allocated(with_fabrics(await leader.health.nodes(now), fabrics_of(probes)), rows)
        self._specs.retain([*queue, *live])
        waiting = [
            queue_view.waiting(job, self._specs, after=unmet, now=now, start_s=settings.gang_timeout_s)
            for job in queue
            if (unmet := await _unmet_dependencies(leader, job)) is not None
        ]
        running = queue_view.held(live, rows, self._specs, now=now)
        quotas = queue_view.quotas_of(await store.queue.projects())
        by_kind = {probe.kind: probe for probe in probes}
        measured = {kind: measured_links(links_for(kind), probe) for kind, probe in by_kind.items()}
        rule = replace(queue_view.rule_of(settings), links=measured)
        # In a thread: with thousands of jobs a decision takes a large part of a second.
        decisions = await asyncio.to_thread(decide, waiting, nodes, running, quotas, now_s=now, rule=rule)
        if settings.autoscale:
            by_id = {job.job_id: job for job in waiting}
            waits = [(by_id[each.job_id], each.why.reason) for each in decisions if isinstance(each, Wait)]
            self.request = build_node_request(waits, running, now_s=now, after_s=settings.autoscale_after_s)
        return decisions

    def conditions(self, wait: Wait) -> tuple[Condition, ...]:
        """Return why a job waits, as conditions."""
        conditions = [Condition(PLACEABLE, False, wait.why.reason.value, wait.why.message)]
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
