"""The state of the server as one sentence. Pure."""

from collections.abc import Mapping, Sequence

from regroup.service.domain.states import JobState
from regroup.service.operations.nodes import NodeState
from regroup.service.operations.overview.device_use import DeviceUse


def describe_health(
    jobs: Mapping[JobState, int], nodes: Sequence[NodeState], devices: DeviceUse | None, silent_clusters: int
) -> str:
    """Return a sentence about jobs, devices and what is wrong, for example `2 jobs run on 8 of 32 GPUs; 1 job waits.`

    Args:
        jobs: number of jobs by state.
        devices: None if the reader may not see nodes.
    """
    running = sum(count for state, count in jobs.items() if state.has_allocations)
    words = f"{_counted(running, 'job')} {_verb(running, 'run')}"
    if devices is not None:
        unit = "GPU" if devices.kind == "cuda" else "core"
        words += f" on {devices.used:g} of {_counted(devices.total, unit)}"
    parts = [words]
    if waiting := jobs.get(JobState.QUEUED, 0):
        parts.append(f"{_counted(waiting, 'job')} {_verb(waiting, 'wait')}")
    if suspended := jobs.get(JobState.SUSPENDED, 0):
        parts.append(f"{_counted(suspended, 'job')} {_are(suspended)} suspended")
    for status in ("quarantined", "fenced", "unreachable", "cordoned"):
        if count := sum(state.status == status for state in nodes):
            parts.append(f"{_counted(count, 'node')} {_are(count)} {status}")
    if silent_clusters:
        parts.append(f"{_counted(silent_clusters, 'cluster')} {_verb(silent_clusters, 'do', 'does')} not answer")
    return "; ".join(parts) + "."


def _counted(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def _verb(count: float, plural: str, singular: str = "") -> str:
    return (singular or f"{plural}s") if count == 1 else plural


def _are(count: float) -> str:
    return "is" if count == 1 else "are"
