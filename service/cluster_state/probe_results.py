"""The results of the newest probes, read once from each probe's finished job."""

import structlog

from regroup.service.domain.states import JobState
from regroup.service.domain.topology import DOMAIN_LEVELS
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.store.rows.records import JobFilter, JobRow
from regroup.service.store.store import Store

FUNCTION = "regroup.workers.probe.run:measure"
"""Function that a probe runs."""
LABEL = "regroup.io/probe"
"""Label of a probe's job. Its value is the kind of devices."""
_KINDS = ("cuda", "cpu")
_NEWEST_JOBS = 5
"""Maximum number of jobs to read for each kind. If none of them is readable, there is no result."""
_log = structlog.get_logger(__name__)


class ProbeResults:
    """A cache of probe results. The result of a finished job does not change."""

    def __init__(self) -> None:
        self._cached: dict[str, ProbeResult | None] = {}

    async def newest(self, store: Store) -> list[ProbeResult]:
        """Return the newest result for each kind of device.

        Raises:
            UnavailableError: the database does not answer.
        """
        inspected: dict[str, ProbeResult | None] = {}
        found: list[ProbeResult] = []
        for kind in _KINDS:
            job_filter = JobFilter(states=frozenset({JobState.SUCCEEDED}), labels={LABEL: kind})
            for job in (await store.page(job_filter, None, _NEWEST_JOBS)).jobs:
                workload = job.spec.get("workload")
                if not isinstance(workload, dict) or workload.get("function") != FUNCTION:
                    continue  # a user's own job with this label
                inspected[job.id] = self._cached[job.id] if job.id in self._cached else await _read(store, job)
                if (measured := inspected[job.id]) is not None:
                    found.append(measured)
                    break
        self._cached = inspected
        return found


async def _read(store: Store, job: JobRow) -> ProbeResult | None:
    """Read a result, with the names and domains of the nodes as of the job's placement."""
    generations, reservations = await store.generations(job.id), await store.queue.reservations_of(job.id)
    try:
        found = (job.result or {})["probe"]
        node_of = {int(place["rank"]): str(place["node_id"]) for place in generations[-1].ranks}
        held = {row.node_id: row.data for row in reservations}
        places = [held[node_of[int(node["ranks"][0])]] for node in found["nodes"]]
        nodes = [
            (str(place.get("machine") or place["name"]), tuple(place.get("domain") or ("",) * len(DOMAIN_LEVELS)))
            for place in places
        ]
        return parse_probe_result(found, nodes, job_id=job.id, time_s=job.finished_at or job.created_at)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        _log.warning("the result of a probe is invalid; the previous result is used", job=job.id, error=repr(error))
        return None
