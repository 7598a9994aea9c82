from typing import Any

from regroup.api.cli.why import explain

BASE: dict[str, Any] = {
    "id": "j1",
    "name": "gpt",
    "reason": "submitted",
    "message": "",
    "conditions": [],
    "created_at": 0.0,
    "queued_at": 40.0,
    "started_at": None,
    "finished_at": None,
    "step": 0,
    "steps": 300,
    "error": None,
    "phase": None,
    "layout": None,
}


def said(incidents: list[dict[str, Any]] | None = None, **changes: Any) -> str:
    return "\n".join(explain({**BASE, **changes}, incidents or [], now_s=100.0))


def test_a_pending_job_tells_what_it_waits_for() -> None:
    condition = {"type": "Placeable", "status": False, "reason": "no_room", "message": "needs 4 ranks, 2 are free"}
    text = said(state="QUEUED", conditions=[condition])
    assert text.splitlines() == ["gpt (j1) is QUEUED, submitted, 1 m ago", "  ✖ Placeable: needs 4 ranks, 2 are free"]


def test_a_starting_job_tells_what_it_is_busy_with() -> None:
    phase = {"phase": "data", "fraction": 0.25, "message": "3 of 12 files"}
    assert "busy with: data 25% 3 of 12 files" in said(state="STARTING", phase=phase)


def test_a_failed_job_gives_one_clean_traceback_and_what_to_do() -> None:
    error = {
        "kind": "ValueError",
        "message": "shapes differ",
        "rank": 2,
        "step": 7,
        "phase": "forward",
        "traceback": "\n".join(f"line {n}" for n in range(40)),
    }
    text = said(state="FAILED", reason="user_error", message="rank 2 raised", error=error, finished_at=90.0)
    assert text.startswith("gpt (j1) is FAILED, user_error, 10 s ago: rank 2 raised")
    assert "ValueError: shapes differ (rank 2, step 7, phase forward)" in text
    assert "line 39" in text and "line 14" not in text and "15 lines more" in text
    assert text.endswith("→ the code raised: regroup logs j1 --rank 2")
    assert len(text.splitlines()) < 40, "more than a screen"


def test_a_slow_job_shows_rate_goodput_and_incidents() -> None:
    incidents = [
        {"cause": "SIGKILL", "rank": 1, "at_step": 149, "steps_lost": 0, "durations": {"total": 0.8}},
        {"cause": "node silent", "rank": None, "at_step": 160, "durations": {}},
    ]
    text = said(
        incidents,
        state="RUNNING",
        reason="first_step",
        started_at=50.0,
        step=160,
        step_duration_s=0.2,
        tokens_per_s=10_240.0,
        layout={"dp_shard": 4},
        goodput=0.62,
    )
    assert "step 160 of 300 · 0.2 s a step · 10.2k tokens/s · dp_shard=4" in text
    assert "goodput 62%: the rest went to starting and recovering" in text
    assert "SIGKILL of rank 1 after step 149: back in 0.8 s, 0 lost" in text
    assert "node silent after step 160: not back yet" in text
    assert "the rest" not in said(state="RUNNING", goodput=0.97)
