"""The series of jobs: the text that the client library would write for them."""

import math
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.states import JobState
from regroup.service.observability import metric_names as names
from regroup.service.observability.job_series import render_job_series
from regroup.service.policy.accounting import StateMark
from regroup.service.store.rows.records import MIRRORED, Condition
from tests.support.inputs.job_rows import JOB

_NAMES = ("plain", 'with "quotes"', "with \\ and\na new line", "ünï")


def account(name: str, **fields: Any) -> JobAccount:
    return JobAccount(replace(JOB, id=f"id of {name}", name=name, **fields), world_size=8)


def samples_of(text: bytes) -> dict[tuple[str, str], float]:
    """Return metric and name of the job → value."""
    families = text_string_to_metric_families(text.decode())
    return {(each.name, each.labels["job"]): each.value for family in families for each in family.samples}


def test_the_text_is_that_of_the_client_library() -> None:
    values = (0, 12, 0.1, 1e-9, 6.1e22, -3.5, math.inf, True, 123456789.0)
    accounts = [account(name, mfu=value) for name in _NAMES for value in values]
    text = render_job_series(accounts, {}, 20.0).decode()
    family = GaugeMetricFamily(names.JOB_MFU.name, names.JOB_MFU.help, labels=names.JOB_MFU.labels)
    for each in accounts:
        assert each.job.mfu is not None
        family.add_metric((each.job.id, each.job.name, each.job.project), each.job.mfu)

    class Collected:
        def collect(self) -> list[GaugeMetricFamily]:
            return [family]

    registry = CollectorRegistry()
    registry.register(Collected())  # type: ignore[arg-type]  # a collector is anything with this method
    assert generate_latest(registry).decode() in text


def test_each_job_has_the_series_of_what_is_known() -> None:
    one = account("one", state=JobState.RUNNING, step=7, loss=None, mirrored_step=5)
    one.timeline.append(StateMark(10.0, JobState.RUNNING))
    few = Condition(MIRRORED, False, "no_mirror", "memory is short")
    two = account("two", step=3, conditions=(few,), phase={"phase": "restoring", "done_bytes": 5})
    found = samples_of(render_job_series([one, two], {one.job.id: {"step_s": 0.5, "bubble": "damaged"}}, 20.0))
    assert found[names.JOB_STEP.name, "one"] == 7 and found[names.JOB_STEP.name, "two"] == 3
    assert found[names.JOB_GOODPUT.name, "one"] == 1.0 and found[names.JOB_WORLD_SIZE.name, "two"] == 8
    assert found[names.JOB_MIRROR_SETS.name, "one"] == 2 and found[names.JOB_MIRROR_SETS.name, "two"] == 0
    assert found[names.JOB_STEP_SECONDS_PREDICTED.name, "one"] == 0.5
    absent = ((names.JOB_LOSS, "one"), (names.JOB_IDLE_PREDICTED, "one"), (names.RESTORE_PROGRESS.total_bytes, "two"))
    assert not found.keys() & {(metric.name, job) for metric, job in absent}
    assert found[names.RESTORE_PROGRESS.done_bytes.name, "two"] == 5


def test_metrics_without_series_are_still_described() -> None:
    text = render_job_series([], {}, 20.0).decode()
    assert f"# TYPE {names.JOB_GOODPUT.name} gauge" in text and samples_of(text.encode()) == {}
