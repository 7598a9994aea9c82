"""Variables of trackers: the same in every generation, and never those that a person has set."""

import json
import re

import pytest

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.tracker_env import tracker_variables


def config(storage_uri: str = "file:///shared/a%20b/jobs/job_01", page_url: str = "") -> AgentConfig:
    return AgentConfig("job_01", "gpt", "n", "n", "127.0.0.1", "s", storage_uri, "", page_url=page_url)


def test_rank_0_has_the_run_of_the_job_and_each_other_rank_its_own() -> None:
    first, second = (tracker_variables(config(), rank, ()) for rank in range(2))
    assert first == {
        "REGROUP_JOB_NAME": "gpt",
        "WANDB_RUN_ID": "job-01",
        "WANDB_RESUME": "allow",
        "WANDB_NAME": "gpt",
        "WANDB_RUN_GROUP": "job_01",
        "MLFLOW_RUN_CONTEXT": '{"regroup_job_id": "job_01"}',
        "REGROUP_TENSORBOARD_DIR": "/shared/a b/jobs/job_01/tensorboard",
        "TENSORBOARD_LOGGING_DIR": "/shared/a b/jobs/job_01/tensorboard",
    }
    assert (second["WANDB_RUN_ID"], second["WANDB_NAME"]) == ("job-01-rank1", "gpt-rank1")
    assert not re.search(r"[^a-zA-Z0-9-]", second["WANDB_RUN_ID"])
    assert json.loads(second["MLFLOW_RUN_CONTEXT"]) == json.loads(first["MLFLOW_RUN_CONTEXT"])


def test_runs_name_the_page_of_the_job() -> None:
    page = "https://regroup.example/console/jobs/job_01"
    found = tracker_variables(config(page_url=page), 0, ())
    assert found["REGROUP_JOB_URL"] == page
    assert found["WANDB_NOTES"] == f"[The job in regroup]({page})"
    assert json.loads(found["MLFLOW_RUN_CONTEXT"]) == {"regroup_job_id": "job_01", "regroup_job_url": page}
    assert "WANDB_NOTES" not in tracker_variables(config(page_url=page), 0, {"WANDB_NOTES"})


@pytest.mark.parametrize("uri", ["s3://bucket/jobs/job_01", "gs://bucket/x"])
def test_an_object_store_has_no_folder_for_tensorboard(uri: str) -> None:
    assert not [name for name in tracker_variables(config(uri), 0, ()) if "TENSORBOARD" in name]
    assert tracker_variables(config("/plain"), 0, ())["REGROUP_TENSORBOARD_DIR"] == "/plain/tensorboard"


def test_existing_variables_stay() -> None:
    existing = {"WANDB_RUN_ID", "MLFLOW_RUN_CONTEXT", "REGROUP_JOB_NAME"}
    assert not existing & tracker_variables(config(), 0, existing).keys()
