import re
from typing import Any

from regroup.api.cli.render.job import render_job

NODE = "3f" * 28
JOB: dict[str, Any] = {
    "id": "job_1", "name": "mine", "project": "default", "labels": {}, "owner": "", "state": "RUNNING",
    "reason": "script_started", "message": "generation 1 runs the script", "step": 9, "steps": None, "generation": 1,
    "layout": {"dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 1, "pp": 1}, "loss": None, "validation_loss": None,
    "tokens_per_s": None, "mfu": 0.046, "exposed_communication": 0.2911, "peak_bytes": 3.156e8, "pipeline_idle": None,
    "mirrored_step": None, "eta_s": None, "goodput": 0.8812, "created_at": 0.0, "started_at": 5.0, "finished_at": 65.0,
    "error": None, "digest": {"parameters": None, "samples": None}, "parameter_count": None, "result": {},
    "conditions": [], "intents": {}, "incidents": [], "storage_uri": "file:///s", "resume_uri": None,
    "placement": [{"rank": rank, "node_id": NODE, "node_name": f"local-{rank // 2}"} for rank in range(4)],
    "prediction": {
        "probe_job_id": None, "predicted": {"step_s": 0.01}, "measured": {"step_s": 0.05, "peak_bytes": None},
        "relative_error": {"step_s": -0.8},
    },
    "spec": {"workload": {"kind": "script"}, "resources": {"device": "cpu"}},
}  # fmt: skip


def rows(**changes: Any) -> dict[str, str]:
    return dict(render_job({**JOB, **changes}))


def test_every_value_is_in_words_and_units() -> None:
    shown = rows()
    assert shown["state"] == "RUNNING (script_started: generation 1 runs the script)"
    assert shown["nodes"] == "local-0: ranks 0-1; local-1: ranks 2-3"
    assert shown["size"] == "4 ranks" and shown["step"] == "9"
    assert shown["waits for other ranks"] == "29% of the newest forward and backward"
    assert shown["peak memory"] == "316 MB in the largest rank" and shown["goodput"] == "88%"
    assert shown["measured"] == "step 50 ms", "no prediction without a probe"
    assert shown["finished"].endswith(", 1 m after the start")
    assert "model FLOPs utilization" not in shown, "a CPU has no stated peak"
    assert not re.search(r"None|\{|\[|Layout|[0-9a-f]{40}", " ".join(shown.values()))


def test_a_checkpoint_that_is_written_has_a_row() -> None:
    progress = "writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s"
    assert rows(save={"step": 40, "message": progress})["save"] == progress
    assert "save" not in rows(save=None) and "save" not in rows()


def test_values_that_are_missing_have_no_row() -> None:
    shown = rows()
    assert not {"loss", "speed", "pipeline idle", "result", "digest parameters", "resumed from"} & shown.keys()
    assert rows(incidents=[{}])["incidents"] == "1; `regroup why job_1` explains them"


def test_results_and_digests_are_shown_without_reprs() -> None:
    shown = rows(result={"accuracy": 0.5, "list": [1, None], "text": "a"}, digest={"parameters": "ab", "samples": None})
    assert (shown["result accuracy"], shown["result list"], shown["result text"]) == ("0.5", "[1, null]", "a")
    assert shown["digest parameters"] == "ab" and "digest samples" not in shown


def test_repeated_steps_are_not_compared_with_the_total() -> None:
    assert rows(step=9252, steps=7500, step_is_estimated=True)["step"] == "9252 steps, some repeated (of 7500)"
    assert rows(step=9, steps=10, eta_s=61.0)["step"] == "9/10, 1 m 1 s left"


def test_many_nodes_are_counted() -> None:
    placement = [{"rank": rank, "node_name": f"n{rank}"} for rank in range(100)]
    assert rows(placement=placement)["nodes"].endswith("n7: rank 7; and 92 more")
