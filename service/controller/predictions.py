"""What is predicted of each generation of a live job, written down as soon as it is heard of: before its steps say."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import structlog

from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.domain.errors import SpecError, UnavailableError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.planner.capacity import room_taken
from regroup.service.planner.from_spec import work_of
from regroup.service.planner.predictions import predicted
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.job import JobSpec
from regroup.service.store.records import Generation, JobRow, Lease
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


class PredictionReconciler:
    """Of one job, between two words with its supervisor."""

    def __init__(self, lease: Lease, store: Store, cluster: Cluster) -> None:
        self._lease, self._store, self._cluster = lease, store, cluster
        self._seen = 0
        """Newest generation that was looked at."""
        self._spec: JobSpec | None = None
        self._probes = ProbeResults()

    async def look(self, job: JobRow) -> None:
        """Predict those that have come. Whatever keeps it from that keeps nobody from training.

        Raises:
            PreconditionError: another leads.
        """
        if job.generation == self._seen:
            return
        if self._spec is None:
            self._spec = job.parsed_spec()
        with contextlib.suppress(SpecError):
            work_of(self._spec)
            with contextlib.suppress(UnavailableError):
                await self._predict(job.id, self._spec)
                self._seen = job.generation
            return
        self._seen = job.generation  # nobody can say anything of this job

    async def _predict(self, job_id: str, spec: JobSpec) -> None:
        known, nodes = await self._store.predictions.of_job(job_id), await self._cluster.nodes()
        probes = await self._probes.newest(self._store)
        for generation in await self._store.generations(job_id):
            if generation.number not in known:
                found = _prediction(spec, generation, nodes, probes)
                await self._store.predictions.put(self._lease, job_id, generation.number, found)


def _prediction(
    spec: JobSpec, generation: Generation, nodes: Sequence[Node], probes: Sequence[ProbeResult]
) -> dict[str, Any]:
    """Plain data: `device`, `ranks`, and the three figures; without these where its nodes are gone already."""
    layout = Layout(**generation.layout)
    places = Counter(str(rank.get("node_id")) for rank in generation.ranks)
    try:
        room = room_taken(demand_of(spec, layout), nodes, places, probes)
        figures = asdict(predicted(spec, layout, room.cluster(layout.world_size), room.constants))
    except SpecError as error:
        return {"why_not": error.issues[0].message}
    except Exception as error:  # of ours: it must not keep the job from being looked after
        _log.exception("a generation could not be predicted", generation=generation.number)
        return {"why_not": f"{type(error).__name__}: {error}; please report this"}
    return {"device": room.device.name, "ranks": layout.world_size, **figures}
