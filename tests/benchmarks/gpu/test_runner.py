"""A stage runs in its own process: time limits, partial results, and stages that cannot run."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import runner
from benchmarks.gpu.runner import run_stage
from benchmarks.gpu.stages import STAGES, Stage

_VALUES = "import sys, pathlib\nfrom benchmarks.gpu.values import Values\n" \
          "v = Values(pathlib.Path(sys.argv[sys.argv.index('--values') + 1]))\n"  # fmt: skip


def stage(source: str, limit_s: float = 60.0, needs: tuple[str, ...] = (), dry_values: tuple[str, ...] = ()) -> Stage:
    return Stage("tried", "a stage", limit_s, ("-c", _VALUES + source), needs, dry_values)


def stored(results: Path) -> dict[str, Any]:
    return json.loads((results / "tried.json").read_text())


def test_values_facts_and_output_are_stored(tmp_path: Path) -> None:
    outcome = run_stage(stage("v.record('rate', 2.5, unit='B/s'); print('said')"), tmp_path, "cpu")
    assert outcome.state == "passed"
    found = stored(tmp_path)
    assert (found["state"], found["device"], found["title"]) == ("passed", "cpu", "a stage")
    (row,) = found["rows"]
    assert (row["name"], row["value"], row["unit"]) == ("rate", 2.5, "B/s")
    assert "said" in found["output_tail"] and found["machine"]["versions"]["torch"]


def test_a_stage_that_fails_keeps_what_it_recorded(tmp_path: Path) -> None:
    outcome = run_stage(stage("v.record('one', 1); raise RuntimeError('no device')"), tmp_path, "cpu")
    assert (outcome.state, outcome.reason) == ("failed", "exit code 1")
    found = stored(tmp_path)
    assert [row["name"] for row in found["rows"]] == ["one"] and "no device" in found["output_tail"]


@pytest.mark.parametrize(("device", "state"), [("cpu", "failed"), ("cuda", "passed")])
def test_a_dry_run_that_records_too_little_fails(tmp_path: Path, device: str, state: str) -> None:
    outcome = run_stage(stage("v.record('one', 1)", dry_values=("one", "two")), tmp_path, device)
    assert (outcome.state, outcome.reason) == (state, "did not record two" if state == "failed" else "")
    assert [row["name"] for row in stored(tmp_path)["rows"]] == ["one"]


_HANGS = """
import os, signal, subprocess, time
v.record('pid', os.getpid())
child = subprocess.Popen(['sleep', '300'])
v.record('child', child.pid)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(300)
"""


def test_a_stage_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_GRACE_S", 0.3)
    begun_s = time.monotonic()
    outcome = run_stage(stage(_HANGS, limit_s=6.0), tmp_path, "cpu")
    assert outcome.state == "timed_out" and "6 s" in outcome.reason
    assert time.monotonic() - begun_s < 60
    pids = {row["name"]: row["value"] for row in stored(tmp_path)["rows"]}
    assert {"pid", "child"} == pids.keys()
    assert not any(_is_alive(pid) for pid in pids.values())


_LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                          "print('ready', flush=True); time.sleep(300)"], stdout=subprocess.PIPE)
child.stdout.readline()
v.record('child', child.pid)
"""


@pytest.mark.parametrize("end", ["import time; time.sleep(300)", "raise RuntimeError"], ids=["timed out", "failed"])
def test_a_child_that_ignores_sigterm_does_not_outlive_its_stage(end: str, tmp_path: Path) -> None:
    outcome = run_stage(stage(_LEAVES_A_CHILD + end, limit_s=6.0), tmp_path, "cpu")
    assert outcome.state in ("timed_out", "failed")
    (row,) = stored(tmp_path)["rows"]
    assert row["name"] == "child" and not _is_alive(row["value"])


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_stage_without_its_packages_is_skipped_and_names_them(tmp_path: Path) -> None:
    outcome = run_stage(stage("v.record('ran', True)", needs=("no_such_package",)), tmp_path, "cpu")
    assert (outcome.state, outcome.reason) == ("skipped", "missing: no_such_package")
    assert stored(tmp_path)["rows"] == []


def test_the_limits_fit_in_eight_minutes_each_and_all_names_differ() -> None:
    assert all(each.limit_s <= 480 for each in STAGES)
    assert len({each.name for each in STAGES}) == len(STAGES)
