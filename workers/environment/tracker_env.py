"""What keeps experiment trackers on one run while generations and ranks come and go: environment variables.

Variables as documented by Weights & Biases (`WANDB_*`), MLflow (`MLFLOW_RUN_CONTEXT`: tags of every run that is made)
and transformers 5 (`TENSORBOARD_LOGGING_DIR`). `MLFLOW_RUN_ID` is not among them: MLflow refuses an id that its server
has not given out itself.
"""

import json
from collections.abc import Container
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from regroup.workers.contract.agent_config import AgentConfig

MLFLOW_TAG = "regroup_job_id"


def tracker_variables(config: AgentConfig, rank: int, given: Container[str]) -> dict[str, str]:
    """Variables of one rank that are the same in every generation, but those that are `given` already.

    A leading rank that alone opens a run has the job's; where every rank opens one, each has its own, in its group.
    """
    run = config.job_id.replace("_", "-") + (f"-rank{rank}" if rank else "")
    variables = {
        "REGROUP_JOB_NAME": config.job_name,
        "WANDB_RUN_ID": run,
        "WANDB_RESUME": "allow",
        "WANDB_NAME": config.job_name + (f"-rank{rank}" if rank else ""),
        "WANDB_RUN_GROUP": config.job_id,
        "MLFLOW_RUN_CONTEXT": json.dumps({MLFLOW_TAG: config.job_id}),
    }
    if (folder := _tensorboard_folder(config.storage_uri)) is not None:
        variables |= {"REGROUP_TENSORBOARD_DIR": folder, "TENSORBOARD_LOGGING_DIR": folder}
    return {name: value for name, value in variables.items() if name not in given}


def _tensorboard_folder(storage_uri: str) -> str | None:
    """Below the job's durable storage where that is a folder; a writer of event files appends to files."""
    parts = urlsplit(storage_uri)
    if parts.scheme not in ("", "file"):
        return None
    return str(PurePosixPath(unquote(parts.path)) / "tensorboard")
