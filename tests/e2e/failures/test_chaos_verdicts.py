"""`regroup chaos run` records its verdict at another server than the one that has the faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup import __version__
from regroup.api.client.client import Client
from tests.support.jobs.chaos_command import chaos
from tests.support.servers.app_server import AppServer


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[AppServer]:
    serving = AppServer(tmp_path / "recorder")
    yield serving
    serving.stop()


def test_the_verdict_of_a_run_is_recorded(tmp_path: Path, recorder: AppServer) -> None:
    code, report = chaos(tmp_path, "run", "rank-killed", "--seed", "3", "--server", recorder.url)
    with Client(recorder.url) as client:
        (found,) = client.chaos_verdicts()
    (outcome,) = report["scenarios"]
    verdict = found.verdict
    assert (verdict.scenario, verdict.seed, verdict.version) == ("rank-killed", 3, __version__)
    assert (verdict.passed, verdict.problems) == (outcome["passed"], outcome["problems"]) == (code == 0, [])
    assert verdict.invariants == outcome["invariants"] and len(verdict.invariants) == 8
    assert (verdict.detect_s, verdict.recover_s) == (outcome["detect_s"], outcome["recover_s"])
    assert verdict.incidents == ["rank_exit"]
