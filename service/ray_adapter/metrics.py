"""Metrics of one job in Ray's own metrics system. Each node's Ray agent exposes them as `ray_regroup_…`.

They show the newest values that the supervisor received. The server's `/metrics` survives restarts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from regroup.service.domain.job_events import GenerationStarted, IncidentRevised, decode
from regroup.service.observability import metric_names as names
from regroup.service.observability.metric_names import Metric
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_config import JobConfig
from regroup.workers.contract.messages import StepRow

_JOB = names.JOB_STEP.labels


class RayMetrics:
    """Exports a supervisor's events as they are emitted."""

    def __init__(self, payload: JobConfig) -> None:
        spec = payload.spec
        self._job = dict(zip(_JOB, (payload.job_id, spec.name, spec.project), strict=True))
        self._gauges = {metric.name: self._tagged(Gauge, metric) for metric in (*_OF_A_STEP, names.JOB_GENERATION)}
        self._incidents: Counter = self._tagged(Counter, names.INCIDENTS)
        self._recovery: Histogram = self._tagged(Histogram, names.RECOVERY, boundaries=list(names.RECOVERY.buckets))
        self._counted: set[str] = set()
        self._timed: set[str] = set()

    def record(self, event: SupervisorEvent) -> None:
        """Export the numbers of an event. Most events have none."""
        match decode(event.type, event.data):
            case StepRow() as row:
                for metric, value in _OF_A_STEP.items():
                    if (now := value(row)) is not None:
                        self._gauges[metric.name].set(now)
            case GenerationStarted(number=number):
                self._gauges[names.JOB_GENERATION.name].set(number)
            case IncidentRevised() as incident:
                self._incident(incident)
            case _:
                pass

    def _incident(self, incident: IncidentRevised) -> None:
        if incident.id not in self._counted:
            self._counted.add(incident.id)
            self._incidents.inc(tags={"cause": incident.reason.value})
        if "total" in incident.durations and incident.id not in self._timed:
            self._timed.add(incident.id)
            for phase, seconds in incident.durations.items():
                self._recovery.observe(seconds, tags={"phase": phase})

    def _tagged(self, kind: type[Any], metric: Metric, **options: Any) -> Any:
        keys = tuple(dict.fromkeys((*metric.labels, *_JOB)))
        help_text = metric.help.replace(", smoothed", "")  # here it is the value of the newest step
        return kind(metric.name, help_text, tag_keys=keys, **options).set_default_tags(self._job)


def _tokens_per_s(tokens: int | None, duration_s: float | None) -> float | None:
    return None if tokens is None or not duration_s else tokens / duration_s


_OF_A_STEP: Mapping[Metric, Callable[[StepRow], float | None]] = {
    names.JOB_STEP: lambda row: row.step,
    names.JOB_LOSS: lambda row: row.loss,
    names.JOB_STEP_SECONDS: lambda row: row.duration_s,
    names.JOB_TOKENS: lambda row: _tokens_per_s(row.tokens, row.duration_s),
    names.JOB_MFU: lambda row: row.extra.get("mfu"),
    names.JOB_EXPOSED: lambda row: row.extra.get("exposed_communication"),
    names.JOB_PEAK_BYTES: lambda row: row.extra.get("peak_bytes"),
}
