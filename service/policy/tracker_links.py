"""Links to the runs of a job in experiment trackers, from the variables of its spec. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from regroup.workers.contract.tracker_runs import MLFLOW_TAG, wandb_run

_WANDB = "https://wandb.ai"
_WANDB_API = "api.wandb.ai"


@dataclass(frozen=True)
class TrackerLink:
    """A page of a tracker."""

    name: str
    """Name of the tracker."""
    url: str


def page_url(public_url: str, job_id: str) -> str:
    """Return the address of a job's page in the console; empty if the address of the server is not known."""
    return f"{public_url.rstrip('/')}/console/jobs/{quote(job_id, safe='')}" if public_url else ""


def tracker_links(job_id: str, spec: Mapping[str, Any]) -> tuple[TrackerLink, ...]:
    """Return the links of a job. Variables from secrets are not read, and credentials in addresses are left out."""
    env = spec.get("env")
    if not isinstance(env, Mapping):
        return ()
    return tuple(_links(job_id, {str(name): str(value) for name, value in env.items()}))


def _links(job_id: str, env: Mapping[str, str]) -> Iterator[TrackerLink]:
    entity, project = env.get("WANDB_ENTITY"), env.get("WANDB_PROJECT")
    server = _web_address(env.get("WANDB_BASE_URL") or _WANDB)
    if entity and project and server and env.get("WANDB_MODE", "online") == "online":
        if urlsplit(server).hostname == _WANDB_API:
            server = _WANDB
        run = env.get("WANDB_RUN_ID") or wandb_run(job_id)
        parts = (quote(part, safe="") for part in (entity, project, "runs", run))
        yield TrackerLink("Weights & Biases", "/".join((server, *parts)))
    if server := _web_address(env.get("MLFLOW_TRACKING_URI", "")):
        experiment = env.get("MLFLOW_EXPERIMENT_ID")
        runs = quote(f"tags.{MLFLOW_TAG} = '{job_id}'", safe="")
        page = f"/#/experiments/{quote(experiment, safe='')}?searchFilter={runs}" if experiment else "/#/experiments"
        yield TrackerLink("MLflow", server + page)


def _web_address(url: str) -> str:
    """Return the address of a server without credentials; empty if browsers cannot open it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    place = name if port is None else f"{name}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
