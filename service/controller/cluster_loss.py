"""The loss of the cluster under a job, which no supervisor is left to report: an incident from what the store knows."""

from collections.abc import Collection, Sequence
from uuid import uuid4

from regroup.service.controller.leader_context import LeaderContext
from regroup.service.domain.job_events import IncidentRevised
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.lost_time import GenerationProgress
from regroup.service.store.rows.records import Generation, JobRow

_LOST_WITH_CLUSTER = "the cluster was lost"


async def record_cluster_loss(
    leader: LeaderContext, job: JobRow, message: str, *, seen_s: float, lost: Collection[str]
) -> None:
    """Record the incident of a job that trained, unless it is recovering from one already.

    The next supervisor of the job charges it, and decides how the job continues.

    Args:
        message: the cause in words.
        seen_s: Unix seconds at which the loss was detected.
        lost: ids of the nodes whose devices are gone.
    """
    if job.state is not JobState.RUNNING or job.is_held:
        return
    newest, incidents = await leader.store.newest_generation_and_incidents(job.id)
    if newest is None or any(each.data.get("generation") == newest.number for each in incidents):
        return
    progress = await leader.store.progress(job.id, newest.number)
    incident = cluster_loss(job, newest, progress, message, seen_s=seen_s, dead_s=leader.clock(), lost=lost)
    await leader.store.record_incident(leader.lease, job.id, incident, now=leader.clock())


def cluster_loss(
    job: JobRow,
    newest: Generation,
    progress: Sequence[GenerationProgress],
    message: str,
    *,
    seen_s: float,
    dead_s: float,
    lost: Collection[str],
) -> IncidentRevised:
    """Return the incident. The fault is dated to the last sign of life that is stored. Pure.

    Args:
        progress: progress of the newest generation.
        dead_s: Unix seconds at which nothing of the job was left in the cluster.
    """
    signs = [newest.time_s, job.reported_at, *(each.last_step_s for each in progress)]
    fault_s = min(seen_s, max(sign for sign in signs if sign is not None))
    times = {"fault_s": fault_s, "seen_s": seen_s, "dead_s": max(seen_s, dead_s)}
    names = {str(place["node_id"]): str(place["node_name"]) for place in newest.ranks}
    return IncidentRevised(
        id=uuid4().hex[:12],
        revision=1,
        cause=message,
        reason=Reason.CLUSTER_LOST,
        node_id=next(iter(lost)) if len(lost) == 1 else None,
        generation=newest.number,
        at_step=job.step,
        times=times,
        durations={"detect": seen_s - fault_s, "teardown": times["dead_s"] - seen_s},
        evidence_bytes=0,
        evidence_missing=dict.fromkeys(names.values(), _LOST_WITH_CLUSTER),
    )


def describe_cluster_loss(newest: Generation | None, lost: Collection[str]) -> str:
    """Describe the loss, with the names of the nodes."""
    names = {} if newest is None else {str(place["node_id"]): str(place["node_name"]) for place in newest.ranks}
    listed = ", ".join(sorted({names.get(node, node[:8]) for node in lost}))
    return f"Ray failed: the supervisor of the job and its devices on {listed or 'all nodes'} are gone"
