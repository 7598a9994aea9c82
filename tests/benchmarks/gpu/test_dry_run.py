"""The first stage on the CPU with gloo, at toy size. `.ci/run` runs all stages (`make gpu --dry-run`)."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.packages.wheel import ROOT


def test_the_first_stage_passes_on_a_cpu(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--dry-run",
        "--only",
        "smoke",
        "--results",
        str(tmp_path / "gpu"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((tmp_path / "gpu/smoke.json").read_text())
    assert (stored["state"], stored["device"]) == ("passed", "cpu")
    assert "losses.toy" in {row["name"] for row in stored["rows"]}
