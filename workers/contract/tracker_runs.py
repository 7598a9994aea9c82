"""Names of a job's runs in experiment trackers: the platform links to the runs that ranks open."""

MLFLOW_TAG = "regroup_job_id"
"""Tag of MLflow runs: id of the job."""
MLFLOW_PAGE_TAG = "regroup_job_url"
"""Tag of MLflow runs: address of the job's page."""


def wandb_run(job_id: str, rank: int = 0) -> str:
    """Return the id of the run that a rank opens in Weights & Biases."""
    return job_id.replace("_", "-") + (f"-rank{rank}" if rank else "")
