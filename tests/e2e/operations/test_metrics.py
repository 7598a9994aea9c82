"""Metrics of real jobs: the server's through a real Prometheus, and Ray's own."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from regroup.api.schemas.jobs import Job
from tests.support.servers.prometheus import PrometheusServer
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
Samples = dict[str, list[tuple[dict[str, str], float]]]
DASHBOARD = json.loads((Path(__file__).resolve().parents[3] / "deploy" / "grafana" / "regroup.json").read_text())
KILL = [{"at": {"rank": 1, "step": 3, "phase": "forward"}, "do": "sigkill"}]


@pytest.fixture(scope="module")
def training(served: Server, spec: Spec) -> Iterator[Job]:
    """A job that runs until the test ends. One of its ranks was killed, and it has recovered."""
    training = {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": 100_000, "validate_every": 4}
    layout = {"dp": 2, "pp": 2}  # a pipeline, so that there is a bubble
    job = served.client.submit(spec("watched", training=training, layout=layout, faults=KILL))
    eventually(lambda: recovered(served, job.id), 120)
    yield served.client.get(job.id)
    served.client.cancel(job.id)
    served.client.wait(job.id, timeout_s=60)


def recovered(served: Server, job_id: str) -> bool:
    job = served.client.get(job_id)
    assert job.state not in ("FAILED", "CANCELLED"), (job.reason, job.message, job.error)
    return bool(job.incidents and job.incidents[0].durations.get("total") and job.step > 8)


def dashboard_expressions() -> dict[str, str]:
    """Return the expression of each panel's query, with Grafana's variables filled in."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "1m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


def exported(served: Server, tags: dict[str, str], names: set[str]) -> Samples | None:
    """Return labels and value of each sample of these names and tags on the Ray nodes; None if a name is missing."""
    folder = Path(json.loads((served.state / "ray.json").read_text())["temp_dir"])
    (listing,) = folder.glob("*/session_latest/prom_metrics_service_discovery.json")
    found: Samples = {}
    for target in json.loads(listing.read_text())[0]["targets"]:
        try:
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
        except urllib.error.URLError:
            return None  # retry a node that refuses once, as Prometheus would
        for sample in (sample for family in families for sample in family.samples if sample.name in names):
            if tags.items() <= sample.labels.items():
                labels = {key: value for key, value in sample.labels.items() if key in ("cause", "phase")}
                found.setdefault(sample.name, []).append((labels, sample.value))
    return found if set(found) == names else None


@pytest.mark.prometheus
def test_the_dashboard_shows_a_running_job(
    served: Server, training: Job, scraping: Callable[..., PrometheusServer]
) -> None:
    token = {"authorization": {"credentials_file": os.environ["REGROUP_TOKEN_FILE"]}}  # as docs/deploy.md describes
    prometheus = scraping(served.url.removeprefix("http://"), access=token)
    at_s = prometheus.wait_for_scrapes(3)
    answers = {title: prometheus.query(expression, at_s) for title, expression in dashboard_expressions().items()}
    of_jobs = {title for title, expression in dashboard_expressions().items() if "regroup_job_" in expression}
    assert len(of_jobs) > 4
    assert {title for title in of_jobs if not answers[title]} == set()
    (step,) = prometheus.query(f'regroup_job_step{{job_id="{training.id}"}}', at_s)
    assert float(step["value"][1]) >= training.step
    (generation,) = prometheus.query(f'regroup_job_generation{{job_id="{training.id}"}}', at_s)
    assert float(generation["value"][1]) == 2
    (killed,) = prometheus.query('regroup_incidents_total{cause="rank_exit"}', at_s)
    assert float(killed["value"][1]) >= 1
    phases = prometheus.query("regroup_recovery_seconds_count", at_s)
    named = {sample["metric"]["phase"] for sample in phases if float(sample["value"][1]) >= 1}
    assert named == {"detect", "teardown", "decide", "form", "restore", "first_step", "total"}


def test_ray_exports_the_job_in_addition_to_its_own_metrics(served: Server, training: Job) -> None:
    tags = {"job_id": training.id, "job": "watched", "project": "default"}
    names = {
        "ray_regroup_job_step", "ray_regroup_job_loss", "ray_regroup_job_step_seconds",
        "ray_regroup_job_tokens_per_second", "ray_regroup_job_generation", "ray_regroup_job_incidents",
    }  # fmt: skip

    # Ray exports every few seconds: the first values may be older than the job.
    def beyond_the_kill() -> Samples | None:
        found = exported(served, tags, names)
        return found if found and found["ray_regroup_job_step"][0][1] > 3 else None

    samples = eventually(beyond_the_kill, 60, 0.5)
    assert samples["ray_regroup_job_generation"] == [({}, 2.0)]
    assert samples["ray_regroup_job_incidents"] == [({}, 1.0)]
