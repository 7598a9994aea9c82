"""A Prometheus server that scrapes the targets of a test."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.ports import free_port

SCRAPE_INTERVAL_S = 0.2


class QueryError(Exception):
    """Prometheus refused an expression."""


@dataclass(frozen=True)
class PrometheusServer:
    """A running server on loopback."""

    url: str

    def query(self, expression: str, at_s: float | None = None) -> list[dict[str, Any]]:
        """Return the instant vector of an expression at a time, by default now.

        A failed scrape ends all series until the next one: on a busy machine, ask at the time of a good scrape.

        Raises:
            QueryError: the expression does not parse or cannot be evaluated.
        """
        parameters = {"query": expression} | ({} if at_s is None else {"time": str(at_s)})
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                result = json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise QueryError(f"{expression}: {json.load(refused).get('error')}") from None
        return result["result"] if result["resultType"] == "vector" else [result]

    def healthy_alerts(self, within_s: float = 20.0) -> set[str]:
        """Wait until every rule was evaluated; return the alerts whose expressions had no error."""
        deadline = time.monotonic() + within_s
        while True:
            with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=10) as answer:
                rules = [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in rules) or time.monotonic() > deadline:
                return {rule["name"] for rule in rules if rule["health"] == "ok"}
            time.sleep(0.05)

    def wait_for_scrapes(self, count: int, within_s: float = 20.0) -> float:
        """Wait until every target was scraped successfully at least `count` times.

        Returns:
            a time, in seconds since 1970, at which the last scrape of every target was successful.
        """
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            scrapes = self.query("sum_over_time(up[5m])")
            if scrapes and all(float(sample["value"][1]) >= count for sample in scrapes):
                good = self.query("timestamp(up == 1)")
                if len(good) == len(scrapes):
                    return max(float(sample["value"][1]) for sample in good)
            time.sleep(0.05)
        pytest.fail(f"Prometheus did not scrape its targets {count} times in {within_s} s: {self.query('up')}")


@pytest.fixture
def scraping(tmp_path: Path) -> Iterator[Callable[..., PrometheusServer]]:
    """Start Prometheus: `scraping("127.0.0.1:8500", rules={...})`; mark the test `prometheus`."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus: not installed (apt-get install prometheus)")
    running: list[subprocess.Popen[bytes]] = []

    def start(
        *targets: str, rules: dict[str, Any] | None = None, access: dict[str, Any] | None = None
    ) -> PrometheusServer:
        folder = tmp_path / f"prometheus-{len(running)}"
        folder.mkdir()
        (folder / "rules.json").write_text(json.dumps(rules or {"groups": []}))
        scrape = {"job_name": "regroup", "static_configs": [{"targets": list(targets)}], **(access or {})}
        interval = f"{int(SCRAPE_INTERVAL_S * 1000)}ms"
        settings = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": ["rules.json"],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        address = f"127.0.0.1:{free_port()}"
        flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("wb") as log:
            command = ["prometheus", *flags, f"--web.listen-address={address}", "--log.level=warn"]
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
        server = PrometheusServer(f"http://{address}")
        _wait_until_ready(server, running[-1], folder / "log")
        return server

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(timeout=20)


def _wait_until_ready(server: PrometheusServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{server.url}/-/ready", timeout=2):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Prometheus did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
