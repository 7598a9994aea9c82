"""The series of each live job in `/metrics`, as text.

With thousands of jobs they are nearly all of the text. The client library needs ten times as long for a line, so the
lines of jobs are written here, in the same format.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.utils import floatToGoString

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.observability import metric_names as names
from regroup.service.observability.job_gauges import JOB_GAUGES
from regroup.service.observability.metric_names import Metric
from regroup.service.planner.stored_values import read_number
from regroup.service.store.rows.records import JobRow


def render_job_series(
    accounts: Sequence[JobAccount], predictions: Mapping[str, Mapping[str, Any]], now: float
) -> bytes:
    """Return the series of jobs in Prometheus text format.

    Args:
        accounts: accounts of the live jobs.
        predictions: job → its newest predictions.
        now: Unix seconds.
    """
    labelled = [(account, _labels(account.job)) for account in accounts]
    lines = list[str]()
    for metric, value in JOB_GAUGES:
        lines += _series(metric, [(labels, value(account, now)) for account, labels in labelled])
    of_jobs = [(labels, predictions.get(account.job.id, {})) for account, labels in labelled]
    for metric, figure in _PREDICTED.items():
        lines += _series(metric, [(labels, read_number(each, figure)) for labels, each in of_jobs if each])
    return "".join(lines).encode()


def _series(metric: Metric, samples: Iterable[tuple[str, float | None]]) -> list[str]:
    name = metric.name
    return [
        f"# HELP {name} {metric.help}\n# TYPE {name} gauge\n",
        *[f"{name}{labels} {_text(value)}\n" for labels, value in samples if value is not None],
    ]


def _text(value: float) -> str:
    number = float(value)
    return repr(number) if -_SAME_BELOW < number < _SAME_BELOW else floatToGoString(number)


def _labels(job: JobRow) -> str:
    """Return the labels of a job's series, sorted by name."""
    values = {"job": job.name, "job_id": job.id, "project": job.project}
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in values.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


_SAME_BELOW = 1e6
"""Go writes smaller numbers as Python does."""
_PREDICTED = {
    names.JOB_STEP_SECONDS_PREDICTED: "step_s",
    names.JOB_PEAK_BYTES_PREDICTED: "peak_bytes",
    names.JOB_IDLE_PREDICTED: "bubble",
}
