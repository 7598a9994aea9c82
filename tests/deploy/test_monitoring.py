"""Tests that dashboard and alerts query existing metrics, in expressions that a real Prometheus evaluates."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from regroup.service.cluster_state.probe_results import FUNCTION, LABEL
from regroup.service.domain.author import Author
from regroup.service.domain.limits import Limit
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.observability.prometheus import Metrics
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind, QuarantinePolicy
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.records import NewJob, ProjectRow
from regroup.service.tasks.server_tasks import ServerTasks
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.probe_output import end, probe_result
from tests.support.servers.prometheus import PrometheusServer, QueryError
from tests.support.servers.regroup_server import eventually
from tests.support.servers.stores import open_store

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "regroup.json").read_text())
MONITORING = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "monitoring.yaml").read_text()))
(RULES,) = [manifest["spec"] for manifest in MONITORING if manifest["kind"] == "PrometheusRule"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


@dataclass(frozen=True)
class Report:
    """Return an event in the format of a supervisor's event."""

    seq: int
    key: str
    type: str
    generation: int
    time_s: float
    data: dict[str, Any]


def life_of_a_job() -> list[Report]:
    """Return the events of two generations: ten steps, a killed rank, ten more steps and a checkpoint."""
    phases = ("detect", "teardown", "decide", "form", "restore", "first_step", "total")
    ranks = [{"rank": 0, "node_id": "n0", "node_name": "a", "address": "::1", "local_rank": 0, "device": 0}]
    formed = {"layout": {"dp_shard": 1}, "world_size": 1, "ranks": ranks, "cause": "", "restore": {"source": "none"}}
    incident = {"id": "i1", "cause": "rank_exit", "reason": "rank_exit", "rank": 0, "node_id": "n0",
                "evidence": {"signal": 9}, "generation": 1, "next_generation": 2, "recovery_action": "respawn",
                "at_step": 10, "steps_lost": 0, "times": {"fault_s": 1011.0, "seen_s": 1011.1, "first_step_s": 1011.8},
                "durations": dict.fromkeys(phases, 0.1)}  # fmt: skip
    saved = {"step": 20, "generation": 2, "uri": "file:///s", "size_bytes": 4096, "files": 2, "duration_s": 0.5,
             "stall_s": 0.01, "validation_loss": 2.5}  # fmt: skip
    kinds: list[tuple[str, str, int, dict[str, Any]]] = [
        ("generation", "generation:1", 1, {**formed, "number": 1, "start_step": 0}),
        ("state", "state:running", 1, {"state": "RUNNING", "reason": "first_step"}),
        *(step(1, number) for number in range(1, 11)),
        ("state", "state:recovering", 1, {"state": "RECOVERING", "reason": "rank_exit"}),
        ("incident", "incident:i1:1", 1, incident),
        ("generation", "generation:2", 2, {**formed, "number": 2, "start_step": 10}),
        ("state", "state:running:2", 2, {"state": "RUNNING", "reason": "first_step"}),
        *(step(2, number) for number in range(11, 21)),
        ("checkpoint", "checkpoint:20", 2, saved),
        ("mirror", "mirror:1", 2, {"step": 19}),
        ("note", "note:1", 2, {"kind": "step_skipped", "step": 12}),
        ("note", "note:2", 2, {"kind": "snapshot_damaged", "step": 9}),
    ]
    return [Report(i, key, kind, g, 1000.0 + i, data) for i, (kind, key, g, data) in enumerate(kinds, 1)]


def step(generation: int, number: int) -> tuple[str, str, int, dict[str, Any]]:
    row = {"generation": generation, "step": number, "time_s": 1000.0 + number, "duration_s": 0.5, "loss": 3.0,
           "tokens": 64, "samples": 4, "samples_hash": number, "learning_rate": 1e-3, "grad_norm": 1.0,
           "validation_loss": 3.1 if number % 5 == 0 else None,
           "extra": {"mfu": 0.4, "exposed_communication": 0.1, "peak_bytes": 5e9, "pipeline_idle": 0.3}}  # fmt: skip
    return "step", f"step:{generation}:{number}", generation, row


async def exposition(folder: Path) -> bytes:
    """Return the server's `/metrics` for a store with one running and one queued job."""
    store = await open_store(f"sqlite:///{folder}/regroup.db")
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 100}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    for number in (1, 2):
        spec = parse_spec({"name": f"gpt-{number}", "workload": workload, "training": training})
        await store.submissions.submit(
            NewJob(f"job_{number}", spec, f"file:///s/{number}"), now=990.0, author=Author("someone")
        )
    await store.queue.put_project(ProjectRow("default", guaranteed=8, budget={"device_hours": 10.0}))
    lease = await store.acquire_lease("controller", 30.0)
    assert lease is not None
    await store.apply(lease, check_transition("job_1", JobState.QUEUED, JobState.PLACING, Reason.PLACED), now=995.0)
    await store.apply(lease, check_transition("job_1", JobState.PLACING, JobState.STARTING, Reason.RESERVED), now=996.0)
    await store.ingest(lease, "job_1", "boot-1", life_of_a_job(), {})
    probe = {
        "name": "probe", "labels": {LABEL: "cpu"}, "workload": {"kind": "function", "function": FUNCTION},
        "training": {"global_batch": 4, "micro_batch": 1, "steps": 4}, "layout": {"dp": 4},
    }  # fmt: skip
    await store.submissions.submit(
        NewJob("job_0", parse_spec(probe), "file:///s/0"), now=490.0, author=Author("someone")
    )
    await end(store, lease, "job_0", probe_result(2), ["local-1", "local-2"])
    await store.predictions.put(lease, "job_1", 2, {"step_s": 0.4, "peak_bytes": 4e9, "bubble": 0.2})
    bad = NodeEvent("local-1", NodeEventKind.PREFLIGHT, time.time(), "preflight:1", message="its matmul is wrong")
    await store.nodes.record_order(bad)
    tasks = ServerTasks()
    tasks.add("controller", lambda: asyncio.sleep(0))
    tasks.passes.lead()
    tasks.passes.complete()
    text = await Metrics(
        store, QuarantinePolicy(3600.0, 600.0), cluster=FakeCluster(), tasks=tasks, blob_bytes=lambda: 1000,
        local_node_starts=lambda: {"succeeded": 1}, refusals={Limit.RATE: 1},
    ).render()  # fmt: skip
    await store.close()
    return text


@pytest.fixture(scope="module")
def metrics_text(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return asyncio.run(exposition(tmp_path_factory.mktemp("store")))


@pytest.fixture
def endpoint(metrics_text: bytes) -> Iterator[str]:
    """Address (`host:port`) that serves the metrics."""

    with serving(lambda: metrics_text) as address:
        yield address


@contextmanager
def serving(answer: Callable[[], bytes | None]) -> Iterator[str]:
    """Serve the answers as metrics; None is an error 500. Yield the address (`host:port`)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer()
            self.send_response(200 if body is not None else 500)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def dashboard_expressions() -> dict[str, str]:
    """Return the expression of each panel's query, with values for Grafana's variables."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "1m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


def families(text: bytes) -> set[str]:
    """Return the names of the series in an exposition."""
    return {re.split(r"[{ ]", line)[0] for line in text.decode().splitlines() if line and not line.startswith("#")}


def queried_metrics(expression: str) -> set[str]:
    return set(re.findall(r"\bregroup_\w+", expression))


def test_dashboard_and_alerts_query_only_existing_metrics(metrics_text: bytes) -> None:
    expressions = [*dashboard_expressions().values(), *(alert["expr"] for alert in ALERTS)]
    assert len(expressions) > 15
    queried = set().union(*(queried_metrics(expression) for expression in expressions))
    assert queried - families(metrics_text) == set()


@pytest.mark.prometheus
def test_every_panel_shows_data_of_a_job(endpoint: str, scraping: Callable[..., PrometheusServer]) -> None:
    prometheus = scraping(endpoint)
    at_s = prometheus.wait_for_scrapes(3)
    empty = {title for title, expression in dashboard_expressions().items() if not prometheus.query(expression, at_s)}
    assert empty == set()
    with pytest.raises(QueryError):
        prometheus.query("sum by (state (regroup_jobs)")


@pytest.mark.prometheus
def test_a_failed_scrape_does_not_change_the_answers_at_a_good_one(scraping: Callable[..., PrometheusServer]) -> None:
    answers: list[bytes | None] = [b"regroup_job_step 7\n"]
    with serving(lambda: answers[-1]) as address:
        prometheus = scraping(address)
        at_s = prometheus.wait_for_scrapes(2)
        answers.append(None)
        eventually(lambda: not prometheus.query("regroup_job_step"), 20)
        (step,) = prometheus.query("regroup_job_step", at_s)
    assert float(step["value"][1]) == 7


@pytest.mark.prometheus
def test_every_alert_is_evaluated(endpoint: str, scraping: Callable[..., PrometheusServer]) -> None:
    prometheus = scraping(endpoint, rules=RULES)
    prometheus.wait_for_scrapes(3)
    for alert in ALERTS:
        prometheus.query(alert["expr"])
    assert {alert["alert"] for alert in ALERTS} == prometheus.healthy_alerts()


def test_every_alert_has_an_entry_in_the_runbook() -> None:
    guide = (ROOT / "docs" / "deploy.md").read_text()
    for alert in ALERTS:
        page, anchor = alert["annotations"]["runbook"].split("#")
        assert page == "docs/deploy.md"
        assert f'id="{anchor}"' in guide
        assert f"`{alert['alert']}`" in guide


def test_the_dashboard_has_a_stable_uid_and_no_fixed_data_source() -> None:
    assert DASHBOARD["uid"] == "regroup"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"], panel["title"]
