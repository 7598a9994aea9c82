"""Links to runs in trackers: from the variables of a spec, without credentials, and none that a browser cannot open."""

from typing import Any

import pytest

from regroup.service.policy.tracker_links import TrackerLink, page_url, tracker_links

WANDB = {"WANDB_ENTITY": "team", "WANDB_PROJECT": "gpt 2"}
MLFLOW = {"MLFLOW_TRACKING_URI": "https://mlflow.example/"}


def links(**env: str) -> tuple[TrackerLink, ...]:
    return tracker_links("job_01", {"env": env})


@pytest.mark.parametrize(
    ("env", "url"),
    [
        (WANDB, "https://wandb.ai/team/gpt%202/runs/job-01"),
        ({**WANDB, "WANDB_RUN_ID": "mine"}, "https://wandb.ai/team/gpt%202/runs/mine"),
        ({**WANDB, "WANDB_BASE_URL": "https://api.wandb.ai"}, "https://wandb.ai/team/gpt%202/runs/job-01"),
        ({**WANDB, "WANDB_BASE_URL": "http://w.example:8080/"}, "http://w.example:8080/team/gpt%202/runs/job-01"),
    ],
)
def test_the_run_in_weights_and_biases(env: dict[str, str], url: str) -> None:
    assert links(**env) == (TrackerLink("Weights & Biases", url),)


@pytest.mark.parametrize(
    ("env", "url"),
    [
        (MLFLOW, "https://mlflow.example/#/experiments"),
        (
            {**MLFLOW, "MLFLOW_EXPERIMENT_ID": "7"},
            "https://mlflow.example/#/experiments/7?searchFilter=tags.regroup_job_id%20%3D%20%27job_01%27",
        ),
        ({"MLFLOW_TRACKING_URI": "http://[::1]:5000/base"}, "http://[::1]:5000/base/#/experiments"),
        ({"MLFLOW_TRACKING_URI": "https://ana:secret@m.example?x=secret"}, "https://m.example/#/experiments"),
    ],
)
def test_the_runs_in_mlflow(env: dict[str, str], url: str) -> None:
    assert links(**env) == (TrackerLink("MLflow", url),)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"WANDB_PROJECT": "gpt"},
        {**WANDB, "WANDB_MODE": "offline"},
        {**WANDB, "WANDB_BASE_URL": "javascript:alert(1)"},
        {"MLFLOW_TRACKING_URI": "file:///runs"},
        {"MLFLOW_TRACKING_URI": "databricks"},
        {"MLFLOW_TRACKING_URI": "https://m.example:port"},
        {"MLFLOW_TRACKING_URI": "https://"},
    ],
)
def test_no_link(env: dict[str, str]) -> None:
    assert links(**env) == ()


@pytest.mark.parametrize("spec", [{}, {"env": None}, {"env": "x"}])
def test_a_damaged_spec_has_no_links(spec: dict[str, Any]) -> None:
    assert tracker_links("job_01", spec) == ()


def test_both_trackers() -> None:
    assert [each.name for each in links(**WANDB, **MLFLOW)] == ["Weights & Biases", "MLflow"]


def test_the_page_of_a_job() -> None:
    assert page_url("https://regroup.example/", "job_01") == "https://regroup.example/console/jobs/job_01"
    assert page_url("", "job_01") == ""
