"""Choice of the stages: from a stage, only some, not those that have passed on this commit, and within the time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.runner import Outcome
from benchmarks.gpu.stages import STAGES, Stage
from tests.support.packages.wheel import ROOT

NAMES = [stage.name for stage in STAGES]
CLEAN = {"commit": "abc", "uncommitted_changes": False}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the stages that ran. Each stores that it passed, `tests` that it failed."""
    names: list[str] = []

    def run(stage: Stage, results: Path, device: str, limit_s: float) -> Outcome:
        names.append(stage.name)
        state = "failed" if stage.name == "tests" else "passed"
        results.mkdir(parents=True, exist_ok=True)
        document = {"state": state, "device": device, "machine": CLEAN, "rows": [], "reason": "", "seconds": 1.0}
        (results / f"{stage.name}.json").write_text(json.dumps(document))
        (results / f"{stage.name}.log").write_text(f"output of {stage.name}\n")
        return Outcome(state, 1.0)

    monkeypatch.setattr(command, "run_stage", run)
    monkeypatch.setattr(command, "machine_facts", lambda: CLEAN)
    return names


def call(tmp_path: Path, *typed: str) -> int:
    return command.main([*typed, "--results", str(tmp_path / "gpu")])


def test_all_stages_run_in_order_and_one_that_fails_ends_none_of_the_others(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path) == 1
    assert ran == NAMES
    printed = capsys.readouterr().out
    assert "  | output of tests\n" in printed and "output of smoke" not in printed


def test_only_what_has_not_passed_runs_again(tmp_path: Path, ran: list[str]) -> None:
    call(tmp_path)
    ran.clear()
    call(tmp_path)
    assert ran == ["tests"]
    call(tmp_path, "--again", "--only", "smoke", "state")
    assert ran == ["tests", "smoke", "state"]


def test_a_result_of_another_device_or_commit_does_not_count(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(tmp_path, "--only", "smoke")
    call(tmp_path, "--only", "smoke", "--dry-run")
    assert ran == ["smoke", "smoke"]
    others: list[dict[str, Any]] = [CLEAN | {"commit": "def"}, CLEAN | {"uncommitted_changes": True}]
    for facts in others:
        monkeypatch.setattr(command, "machine_facts", lambda facts=facts: facts)
        ran.clear()
        call(tmp_path, "--only", "smoke", "--dry-run")
        assert ran == ["smoke"]


def test_from_begins_with_a_stage(tmp_path: Path, ran: list[str]) -> None:
    assert call(tmp_path, "--from", "recovery") == 0
    assert ran == NAMES[NAMES.index("recovery") :]


def test_without_time_nothing_runs_and_the_output_names_the_next_stage(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "--minutes", "0") == 1
    assert ran == []
    assert "Continue with --from smoke" in capsys.readouterr().out


def test_the_dry_run_of_make_runs_the_command() -> None:
    typed = ["make", "gpu", "--dry-run", f"GPU_PYTHON={sys.executable}", "ARGS=--list"]
    done = subprocess.run(typed, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert "--dry-run --list" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if " s  " in line] == NAMES


def test_a_summary_is_written_next_to_the_results(tmp_path: Path, ran: list[str]) -> None:
    call(tmp_path)
    stages = json.loads((tmp_path / "gpu.json").read_text())["stages"]
    assert {name: each["state"] for name, each in stages.items()} == {
        name: "failed" if name == "tests" else "passed" for name in NAMES
    }
