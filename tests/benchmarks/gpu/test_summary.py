"""The summary has the figures of the largest size that was measured, and none of a stage that failed."""

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.summary import figures


def store(folder: Path, stage: str, state: str, **values: Any) -> None:
    rows = [{"name": name.replace("__", "."), "value": value} for name, value in values.items()]
    document = {"state": state, "reason": "", "seconds": 1.0, "device": "cuda", "rows": rows}
    (folder / f"{stage}.json").write_text(json.dumps(document))


def test_the_largest_size_counts(tmp_path: Path) -> None:
    store(tmp_path, "recovery", "passed", kill_to_first_step_s__toy=0.5, kill_to_first_step_s__100M=1.5)
    store(tmp_path, "state", "passed", snapshot_d2h_ratio__1024MiB=0.7, snapshot_d2h_ratio__12288MiB=0.9)
    found = figures(tmp_path)
    assert (found["kill_to_first_step_p50_s"], found["snapshot_d2h_ratio"]) == (1.5, 0.9)
    assert "ratio_plain_loop" not in found


def test_a_failed_stage_has_no_figures(tmp_path: Path) -> None:
    store(tmp_path, "smoke", "failed", fork_to_context_s=0.4)
    found = figures(tmp_path)
    assert "fork_to_context_s" not in found and found["stages"]["smoke"]["state"] == "failed"
