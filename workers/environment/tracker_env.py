"""Environment variables that keep experiment trackers on one run through all generations of a job.

A run names the page of its job, if the address of the server is known.

Weights & Biases documents `WANDB_*`, MLflow documents `MLFLOW_RUN_CONTEXT` (tags of every new run), and transformers 5
documents `TENSORBOARD_LOGGING_DIR`. `MLFLOW_RUN_ID` is missing because MLflow refuses an ID that its server did not
create.
"""

import json
from collections.abc import Container
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.tracker_runs import MLFLOW_PAGE_TAG, MLFLOW_TAG, wandb_run


def tracker_variables(config: AgentConfig, rank: int, existing: Container[str]) -> dict[str, str]:
    """Return the variables of a rank, the same in every generation, without those in `existing`.

    Rank 0 has the run of the job, and each other rank has its own run in the same group. So it does not matter whether
    only rank 0 opens a run, or every rank.
    """
    tags = {MLFLOW_TAG: config.job_id}
    variables = {
        "REGROUP_JOB_NAME": config.job_name,
        "WANDB_RUN_ID": wandb_run(config.job_id, rank),
        "WANDB_RESUME": "allow",
        "WANDB_NAME": config.job_name + (f"-rank{rank}" if rank else ""),
        "WANDB_RUN_GROUP": config.job_id,
    }
    if config.page_url:
        tags[MLFLOW_PAGE_TAG] = config.page_url
        variables |= {"REGROUP_JOB_URL": config.page_url, "WANDB_NOTES": f"[The job in regroup]({config.page_url})"}
    variables["MLFLOW_RUN_CONTEXT"] = json.dumps(tags)
    # A job with a user of its own cannot write to durable storage: only the agent can.
    if not config.rank_users and (folder := _tensorboard_folder(config.storage_uri)) is not None:
        variables |= {"REGROUP_TENSORBOARD_DIR": folder, "TENSORBOARD_LOGGING_DIR": folder}
    return {name: value for name, value in variables.items() if name not in existing}


def _tensorboard_folder(storage_uri: str) -> str | None:
    """Return a folder in the job's durable storage; None for an object store, because event files are appended to."""
    parts = urlsplit(storage_uri)
    if parts.scheme not in ("", "file"):
        return None
    return str(PurePosixPath(unquote(parts.path)) / "tensorboard")
