from typing import Any

from regroup.api.cli.render.why import render_why

BASE: dict[str, Any] = {
    "id": "j1", "state": "RUNNING", "reason": "first_step", "summary": "RUNNING.", "advice": [], "conditions": [],
    "phase": None, "error": None, "incidents": [], "queue_position": None, "recovery_s": 0.0, "stall_ratio": None,
    "mean_recovery_s": None, "steps_lost": {},
    "seconds": {}, "goodput": None,
}  # fmt: skip


def text(**changes: Any) -> list[str]:
    return render_why({**BASE, **changes})


def test_a_pending_job_shows_its_reason_and_advice() -> None:
    condition = {"type": "Placeable", "status": False, "reason": "no_room", "message": "needs 4 ranks, 2 are free"}
    met = {"type": "Validated", "status": True, "reason": "ok", "message": ""}
    assert text(summary="Queued for 60 s.", conditions=[condition, met], advice=["Add a node."]) == [
        "Queued for 60 s.", "  ✖ Placeable: needs 4 ranks, 2 are free", "  ✓ Validated: ok", "→ Add a node."
    ]  # fmt: skip


def test_a_job_shows_its_host_memory_if_it_is_known() -> None:
    memory = "20 GB per rank: 4 sets of 5 GB for snapshots and mirrors"
    assert text(host_memory=memory) == ["RUNNING.", f"  host memory: {memory}"]
    assert text(host_memory=None) == ["RUNNING."]


def test_a_failed_job_shows_one_traceback_that_fits_a_screen() -> None:
    error = {"kind": "ValueError", "message": "shapes differ", "rank": 2, "step": 7, "phase": "forward",
             "traceback": "\n".join(f"line {n}" for n in range(40))}  # fmt: skip
    lines = text(error=error)
    assert lines[1] == "  ValueError: shapes differ (rank 2, step 7, phase forward)"
    assert lines[2] == "    … 15 more lines with --json" and lines[3] == "    line 15" and lines[-1] == "    line 39"
    assert len(lines) < 40


def test_a_slow_job_shows_goodput_and_incidents() -> None:
    incidents = [
        {"cause": "SIGKILL", "rank": 1, "at_step": 149, "steps_lost": 0, "durations": {"total": 0.8}},
        {"cause": "node silent", "rank": None, "at_step": 160, "durations": {}, "number": 2, "evidence_bytes": 9},
    ]
    seconds = {"queued": 0.0, "starting": 5.0, "training": 62.0, "recovering": 0.8}
    cost = {"mean_recovery_s": 0.8, "steps_lost": {"rank_exit": 0, "agent_lost": 3}}
    assert text(incidents=incidents, goodput=0.62, seconds=seconds, **cost)[1:] == [
        "  2 incidents, mean recovery time 0.8 s, 3 steps lost to agent_lost",
        "    SIGKILL of rank 1 after step 149: recovered in 0.8 s, 0 steps lost",
        "    node silent after step 160: not recovered yet",
        "    all evidence: regroup evidence j1 2",
        "  goodput 62%: training 1 m 2 s, starting 5.0 s, recovering 0.8 s",
    ]


def test_a_young_job_shows_its_time_without_goodput() -> None:
    assert text(seconds={"starting": 15.0, "training": 0.2})[1:] == ["  so far: starting 15 s, training 0.2 s"]


def test_a_hang_shows_the_stack_of_the_outlier_rank() -> None:
    stack = 'Thread 0x1 (x):\n  File "a.py", line 1 in a\n\nCurrent thread 0x2 (x):\n  File "t.py", line 9 in think\n'
    ranks = {"0": {"stack": "other"}, "1": {"node": "n1", "step": 3, "phase": "forward", "stack": stack}}
    hang = {"cause": "no rank moved on", "rank": 1, "at_step": 2, "evidence": {"outlier_ranks": [1], "ranks": ranks},
            "times": {"fault_s": 5.0, "formed_s": 15.5, "ended_s": 20.0}}  # fmt: skip
    assert text(incidents=[hang])[2:5] == [
        "    no rank moved on of rank 1 after step 2: restarted in 10 s, no step since",
        "    rank 1 on n1, step 3, forward, newest call first:",
        '      File "t.py", line 9 in think',
    ]


AXIS = {"name": "dp_shard", "seconds": 5.01, "leaves": "node"}
CHOICE = {"inside": "rack r1", "communication_s": 5.01, "axes": [AXIS], "rejected": [], "probe_job_id": "job_9"}


def test_a_predicted_time_is_shown_only_with_a_probe() -> None:
    measured = "  placed in rack r1: predicted communication 5.01 s per step (dp_shard 5.01 s between nodes)"
    assert text(choice=CHOICE)[1] == measured
    assert text(choice={**CHOICE, "probe_job_id": None})[1] == "  placed in rack r1: dp_shard between nodes"
    assert text(choice={**CHOICE, "communication_s": None, "axes": []})[1] == "  placed in rack r1"


def test_the_time_of_an_ended_job_without_steps_has_no_goodput() -> None:
    assert text(state="FAILED", seconds={"starting": 50.0})[1:] == ["  time: starting 50 s"]
