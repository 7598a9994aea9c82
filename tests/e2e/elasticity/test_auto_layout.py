"""A job with an open layout runs the planned one. The prediction is reported next to the measured step times."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.domain.layout import Layout
from tests.support.servers.regroup_server import Server, eventually

pytestmark = [pytest.mark.slow, pytest.mark.alone]
SPLIT = {"auto": {"ranks": 4}, "pp": 2}
"""A pipeline, so that there is a bubble; the planner chooses all else."""


def left_open(spec: Callable[..., dict[str, Any]], name: str, steps: int, layout: object) -> dict[str, Any]:
    made = spec(name, steps=steps, layout=layout)
    del made["training"]["micro_batch"]
    made["workload"]["model"] = {"dim": 64, "layers": 4, "heads": 4, "vocab_size": 264}
    return made


def losses(server: Server, job: Job) -> dict[int, float]:
    return {row.step: row.loss for row in server.client.steps(job.id) if row.loss is not None}


def typed(server: Server, *arguments: str) -> str:
    command = [sys.executable, "-m", "regroup.api.cli", *arguments, "--server", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def predicted_in_metrics(server: Server, job: Job) -> set[str]:
    """Return the names of the series of the job."""
    lines = server.get("/metrics").splitlines()
    return {line.partition("{")[0] for line in lines if job.id in line and "predicted" in line}


def test_the_planned_layout_runs_and_is_compared_with_the_prediction(
    served: Server, spec: Callable[..., dict[str, Any]]
) -> None:
    job = served.client.submit(left_open(spec, "auto-layout", 40, SPLIT))
    series = eventually(lambda: predicted_in_metrics(served, job), 120)
    assert series == {
        "regroup_job_step_predicted_seconds", "regroup_job_peak_predicted_bytes", "regroup_job_idle_predicted_ratio",
    }  # fmt: skip
    job = served.client.wait(job.id, timeout_s=240)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)

    plan = served.client.job_plan(job.id)
    assert plan.report is not None and plan.given == ["layout.pp"]
    best = plan.report.plans[0]
    (formed,) = served.client.generations(job.id)
    assert formed.layout == Layout(**best.layout.model_dump()) and formed.world_size == 4
    training = job.spec.training
    assert training is not None
    assert (training.micro_batch, training.activation_checkpointing) == (best.micro_batch, best.checkpointing)
    assert job.spec.layout.schedule == best.schedule

    (compared,) = plan.generations
    assert job.prediction is not None and job.prediction == compared
    assert compared.predicted.bubble == pytest.approx(best.bubble)
    assert compared.measured.bubble is not None and 0 < compared.measured.bubble < 1
    assert compared.measured.step_s is not None and compared.measured.peak_bytes is not None
    assert compared.predicted.step_s is not None and compared.predicted.peak_bytes is not None
    assert compared.relative_error.step_s == pytest.approx(compared.predicted.step_s / compared.measured.step_s - 1)
    # Nearly all of these bytes are an idle process: the hardware table's estimate for a core.
    assert 0.5 < compared.predicted.peak_bytes / compared.measured.peak_bytes < 2
    assert served.client.ledger(job.id).exact

    report = typed(served, "plan", "--job", job.id)
    assert " estimated (" in report and "not from measurements" in report, "nothing of this cluster was measured"
    assert "predicted" not in typed(served, "get", job.id)
    watched = typed(served, "watch", job.id)
    assert "measured: step " in watched and "bubble " in watched


def test_the_result_is_that_of_the_same_spec_with_an_explicit_layout(
    served: Server, spec: Callable[..., dict[str, Any]]
) -> None:
    chosen = served.run(left_open(spec, "auto-all", 6, "auto"))
    assert chosen.state == "SUCCEEDED", (chosen.reason, chosen.message, chosen.error)
    explicit = served.client.submit(chosen.spec.model_copy(update={"name": "explicit"}))
    other = served.client.wait(explicit.id, timeout_s=240)
    assert other.digest == chosen.digest, "the stored spec can be submitted again, with the same result"
    assert served.client.job_plan(explicit.id).report is None


def test_candidates_are_measured_and_the_fastest_is_used_without_a_lost_step(
    served: Server, spec: Callable[..., dict[str, Any]]
) -> None:
    # The sharding is fixed: with a probe's results, the server might choose one that leaves only two
    # # ways to split the ranks.
    open_spec = left_open(spec, "refined", 90, {"auto": {"ranks": 4, "refine": "measure"}, "data_parallel": "fsdp"})
    open_spec["training"]["precision"] = "fp64"
    job = served.run(open_spec)
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    plan = served.client.job_plan(job.id)
    assert len(plan.trials) == 3 and plan.kept is not None, plan
    measured = {trial.layout: trial.measured_s for trial in plan.trials if trial.measured_s is not None}
    assert measured[plan.kept] == min(measured.values())
    assert job.layout == plan.kept
    formed = [generation.layout for generation in served.client.generations(job.id)]
    assert list(dict.fromkeys(formed)) == [trial.layout for trial in plan.trials]
    assert [incident.steps_lost for incident in job.incidents] == [0] * (len(formed) - 1)
    assert served.client.ledger(job.id).exact
    assert {each.generation for each in plan.generations} == set(range(1, len(formed) + 1))
    assert "chosen: " in typed(served, "plan", "--job", job.id) and "3 of 3, " in typed(served, "events", job.id)

    explicit = served.client.submit(job.spec.model_copy(update={"name": "not-refined"}))
    other = served.client.wait(explicit.id, timeout_s=240)
    assert other.state == "SUCCEEDED" and len(served.client.generations(other.id)) == 1
    undisturbed = losses(served, other)
    assert losses(served, job) == {step: pytest.approx(loss, rel=1e-10) for step, loss in undisturbed.items()}
