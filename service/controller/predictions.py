"""The predictions for each generation of a live job, recorded before its first steps."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import structlog

from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.reconciler import Reconciler
from regroup.service.domain.errors import SpecError, UnavailableError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.planner.capacity import generation_capacity
from regroup.service.planner.from_spec import work_of
from regroup.service.planner.host_memory import find_host_memory
from regroup.service.planner.predictions import predict_step
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.sync import SupervisorStatus
from regroup.service.spec.job import JobSpec
from regroup.service.store.rows.records import Generation, JobRow

_log = structlog.get_logger(__name__)


class PredictionReconciler(Reconciler):
    """Records the predictions of one job."""

    def __init__(self, leader: LeaderContext, handled: int = 0) -> None:
        """Initialize. Generations up to number `handled` have predictions."""
        self._leader, self._generation = leader, handled
        self._spec: JobSpec | None = None
        self._probes = ProbeResults()

    async def reconcile(self, job: JobRow, status: SupervisorStatus, now: float) -> None:
        """Predict the new generations. A prediction that fails does not affect training."""
        if job.generation == self._generation:
            return
        if self._spec is None:
            self._spec = job.parsed_spec()
        with contextlib.suppress(SpecError):
            work_of(self._spec)
            with contextlib.suppress(UnavailableError):
                await self._predict(job.id, self._spec)
                self._generation = job.generation
            return
        self._generation = job.generation  # the planner cannot predict this job

    async def _predict(self, job_id: str, spec: JobSpec) -> None:
        store, recorded = self._leader.store, await self._leader.store.predictions.of_job(job_id)
        new = [each for each in await store.generations(job_id) if each.number not in recorded]
        if not new:  # a new leader finds those of all running jobs
            return
        nodes, probes = await self._leader.cluster.nodes(), await self._probes.newest(store)
        for generation in new:
            # In a thread: the work grows with the job's layout.
            prediction = await asyncio.to_thread(_prediction, spec, generation, nodes, probes)
            await store.predictions.put(self._leader.lease, job_id, generation.number, prediction)


def _prediction(
    spec: JobSpec, generation: Generation, nodes: Sequence[Node], probes: Sequence[ProbeResult]
) -> dict[str, Any]:
    """Return `device`, `ranks`, `probe_job_id` and the metrics as plain data, or `why_not` if the nodes are gone."""
    layout = Layout(**generation.layout)
    places = Counter(str(rank.get("node_id")) for rank in generation.ranks)
    try:
        capacity = generation_capacity(demand_of(spec, layout), nodes, places, probes)
        metrics = asdict(predict_step(spec, layout, capacity.cluster(layout.world_size), capacity.constants))
        host_memory = asdict(find_host_memory(spec, layout, capacity))
    except SpecError as error:
        return {"why_not": error.issues[0].message}
    except Exception as error:  # a fault of the planner must not stop the controller from reconciling the job
        _log.exception("could not predict a generation", generation=generation.number)
        return {"why_not": f"{type(error).__name__}: {error}; please report this"}
    probe = capacity.hardware.probe
    return {
        "device": capacity.device.name,
        "ranks": layout.world_size,
        "probe_job_id": None if probe is None else probe.job_id,
        **metrics,
        "host_memory": host_memory,
    }
