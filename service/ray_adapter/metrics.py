"""Metrics of one job in Ray's own metrics system. Each node's Ray agent exposes them as `ray_regroup_…`.

They show the newest values that the supervisor received. The server's `/metrics` survives restarts. All are gauges: Ray
drops the label set of a gauge soon after its process has ended, but keeps that of a counter or a histogram.
"""

from collections.abc import Callable, Mapping

from ray.util.metrics import Gauge

from regroup.service.domain.job_events import GenerationStarted, IncidentRevised, decode
from regroup.service.observability import metric_names as names
from regroup.service.observability.metric_names import Metric
from regroup.service.ports.sync import SupervisorEvent
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.contract.messages import StepRow

_JOB = names.JOB_STEP.labels


class RayMetrics:
    """Exports a supervisor's events as they are emitted."""

    def __init__(self, payload: JobConfig) -> None:
        spec = payload.spec
        self._job = dict(zip(_JOB, (payload.job_id, spec.name, spec.project), strict=True))
        exported = (*_OF_A_STEP, names.JOB_GENERATION, names.JOB_INCIDENTS)
        self._gauges = {metric.name: self._tagged(metric) for metric in exported}
        self._incidents: set[str] = set()

    def record(self, event: SupervisorEvent) -> None:
        """Export the numbers of an event. Most events have none."""
        match decode(event.type, event.data):
            case StepRow() as row:
                for metric, value in _OF_A_STEP.items():
                    if (now := value(row)) is not None:
                        self._gauges[metric.name].set(now)
            case GenerationStarted(number=number):
                self._gauges[names.JOB_GENERATION.name].set(number)
            case IncidentRevised(id=incident_id):
                self._incidents.add(incident_id)
                self._gauges[names.JOB_INCIDENTS.name].set(len(self._incidents))
            case _:
                pass

    def _tagged(self, metric: Metric) -> Gauge:
        help_text = metric.help.replace(", smoothed", "")  # here it is the value of the newest step
        return Gauge(metric.name, help_text, tag_keys=_JOB).set_default_tags(self._job)


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
