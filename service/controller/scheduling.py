"""What the queue's policy is shown of rows and nodes, and what it decides."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from regroup.service.cluster_state import queue as shown
from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.controller.job_reconciler import Leading
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.measurements.hardware_overlay import measured_links
from regroup.service.policy.measurements.results import fabrics_of
from regroup.service.policy.placement.link_speeds import links_for
from regroup.service.policy.scheduling.autoscaler_request import NodeRequest, build_node_request
from regroup.service.policy.scheduling.decide import SchedulingDecision, Wait, decide
from regroup.service.policy.topology.device_islands import with_fabrics
from regroup.service.store.records import NODES_REQUESTED, START_ESTIMATED, Condition, JobRow

PLACEABLE = "Placeable"
"""Condition of a job that waits: false, and why."""


class Scheduler:
    """Reads what a look at the queue needs. Kept between looks, because specs are not read twice."""

    def __init__(self) -> None:
        self._specs = shown.Specs()
        self._probes = ProbeResults()
        self.request = NodeRequest()
        """What nodes the newest look would have: none if nobody waits for any."""

    async def look(self, leading: Leading, queue: Sequence[JobRow]) -> list[SchedulingDecision]:
        """What is done with the queue now. Jobs that can never start, because another has failed, are ended.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        store, settings, now = leading.store, leading.settings, leading.clock()
        live, rows = await store.live_jobs(), await store.live_allocations()
        probes = await self._probes.newest(store)
        nodes = without_allocated(with_fabrics(await leading.health.nodes(now), fabrics_of(probes)), rows)
        self._specs.keep([*queue, *live])
        waiting = [
            shown.waiting(job, self._specs, after=after, now=now, start_s=settings.gang_timeout_s)
            for job in queue
            if (after := await _comes_after(leading, job)) is not None
        ]
        running = shown.held(live, rows, self._specs, now=now)
        quotas = shown.quotas_of(await store.queue.projects())
        found = {probe.kind: probe for probe in probes}
        measured = {kind: measured_links(links_for(kind), probe) for kind, probe in found.items()}
        rule = replace(shown.rule_of(settings), links=measured)
        # In a thread: with thousands of jobs it takes a good part of a second.
        decisions = await asyncio.to_thread(decide, waiting, nodes, running, quotas, now_s=now, rule=rule)
        if settings.autoscale:
            by_id = {job.job_id: job for job in waiting}
            waits = [(by_id[each.job_id], each.why.reason) for each in decisions if isinstance(each, Wait)]
            self.request = build_node_request(waits, running, now_s=now, after_s=settings.autoscale_after_s)
        return decisions

    def conditions(self, wait: Wait) -> tuple[Condition, ...]:
        """Why a job waits, as its conditions say it."""
        told = [Condition(PLACEABLE, False, wait.why.reason.value, wait.why.message)]
        if wait.start_s is not None:
            at = datetime.fromtimestamp(wait.start_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
            told.append(Condition(START_ESTIMATED, True, "promised", at))
        if wait.job_id in self.request.jobs:
            told.append(Condition(NODES_REQUESTED, True, "autoscaler", "the autoscaler was asked for nodes for it"))
        return tuple(told)


async def _comes_after(leading: Leading, job: JobRow) -> Sequence[str] | None:
    """Names of the jobs that it still waits for; None if one of them failed, and with it this one."""
    if not (after := job.spec.get("depends_on")):
        return ()
    names, failed = shown.unmet(after, {job_id: await leading.store.job(job_id) for job_id in after})
    if failed is None:
        return names
    message = f"job {failed.name!r} ({failed.id}), which it was to come after, ended {failed.state}: {failed.reason}"
    if job.state is JobState.QUEUED:
        await leading.move(job, JobState.FAILED, Reason.DEPENDENCY_FAILED, message)
    return None
