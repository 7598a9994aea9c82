import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from regroup.api.live.job_view import JobView, apply_event, apply_job, apply_steps, steps_lost_text
from regroup.api.live.line_log import describe_changes
from regroup.api.live.screen import screen


def reported(story, events: list[dict[str, Any]]) -> list[str]:
    view, lines = story.view([]), list[str]()
    for event in events:
        after = story.after(view, event)
        lines += describe_changes(view, after)
        view = after
    return lines


def test_each_change_is_logged_once_and_in_order(story) -> None:
    events = [*story.until_the_kill, *story.the_return, story.state("SUCCEEDED", "completed")]
    lines = reported(story, events)
    assert lines[:4] == [
        "state STARTING (reserved)",
        "starting: 12 files 40%",
        "generation 1 · dp_shard=4 · node-1: ranks 0, 1; node-2: ranks 2, 3",
        "state RUNNING (first_step)",
    ]
    assert lines[4] == "step 1/300  loss 5.4136"
    kill = lines.index("incident: SIGKILL of rank 1 after step 149")
    assert lines[kill + 1 :] == [
        "  seen 20 ms",
        "  dead 40 ms",
        "generation 2 · dp_shard=4 · node-1: ranks 0, 1; node-2: ranks 2, 3",
        "  formed 0.3 s",
        "  restored 0.4 s",
        "  first step 0.8 s",
        "  recovered in 0.8 s, 0 steps lost",
        "step 150/300  loss 2.0823  held-out 2.1823",
        "state SUCCEEDED (completed)",
    ]
    assert len(lines) == len(set(lines))


def test_the_begin_of_a_slow_checkpoint_is_logged_once(story) -> None:
    before = story.view([story.step(41)])
    begun = replace(before, save="writing checkpoint of step 40: 0.4 of 4.0 GB, 310 MB/s")
    later = replace(before, save="writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s")
    assert describe_changes(before, begun) == [begun.save]
    assert describe_changes(begun, later) == describe_changes(later, before) == []


def test_a_long_run_has_few_step_lines_but_all_held_out_losses(story) -> None:
    lines = reported(story, [story.step(s) for s in range(1, 300)])
    assert len(lines) == 1 + 19 + 4  # the first, every 15th, and 50, 100, 200 and 250


def test_a_late_incident_is_logged_completely(story) -> None:
    lines = describe_changes(story.view([]), story.view([story.incident(story.back_at, steps_lost=0)]))
    assert lines[0].startswith("incident") and lines[-1] == "  recovered in 0.8 s, 0 steps lost" and len(lines) == 7


def test_an_incident_is_logged_with_its_final_cause(story) -> None:
    """Check that the cause is final only when all ranks died: a consequence may be reported before its cause."""
    early = story.incident({"fault_s": 115.0, "seen_s": 115.02}, cause="Connection reset by peer", rank=2)
    lines = reported(story, [story.state("RUNNING", "first_step"), early, story.incident(story.killed_at)])
    assert lines[1:] == ["incident: SIGKILL of rank 1 after step 149", "  seen 20 ms", "  dead 40 ms"]


def test_a_failure_is_logged_with_reason_and_error(story) -> None:
    end = story.state("FAILED", "user_error", message="rank 2 raised", error={"kind": "ValueError", "message": "no"})
    assert reported(story, [end]) == ["state FAILED (user_error · rank 2 raised)", "error ValueError: no"]


def test_only_known_values_of_a_script_are_logged() -> None:
    view = JobView("j", "train", None, generation=1)
    unknown = {"generation": 1, "time_s": 1.0, "loss": None, "tokens": None}
    after = apply_steps(view, [{**unknown, "step": step, "time_s": float(step)} for step in range(1, 31)])
    assert (after.loss, after.tokens_per_s, after.eta_s) == (None, None, None)
    lines = describe_changes(view, after)
    assert lines == [f"step {step}" for step in (*range(1, 10), 10, 20, 30)]
    kept = apply_event(after, {"type": "resumed", "data": {"step": 20, "has_step_count": True}})
    assert kept.step == 20
    assert steps_lost_text(None) == "steps lost unknown"
    assert "step 20" in rendered(kept)


def rendered(view: JobView) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(view, now_s=40.0, width=100))
    return console.export_text()


def test_the_error_of_the_prediction_is_logged_at_the_end(story) -> None:
    foretold = {"step_s": 0.09, "peak_bytes": 2.0**30, "bubble": None}
    found = {"step_s": 0.1, "peak_bytes": None, "bubble": None}
    prediction = {
        "probe_job_id": "job_9",
        "predicted": foretold,
        "measured": found,
        "relative_error": {"step_s": -0.1, "peak_bytes": None},
    }
    view = story.view([*story.until_the_kill, *story.the_return])
    there = apply_job(view, {"id": "job_1", "name": "gpt", "prediction": prediction})
    assert describe_changes(view, there) == []
    ended = story.after(there, story.state("SUCCEEDED", "completed"))
    assert describe_changes(there, ended) == [
        "measured: step 0.1 s, 90 ms predicted (-10%)",
        "state SUCCEEDED (completed)",
    ]
    assert describe_changes(ended, ended) == []
    unknown = story.after(view, story.state("SUCCEEDED", "completed"))
    assert describe_changes(unknown, apply_job(unknown, {"id": "job_1", "name": "gpt", "prediction": prediction})) == [
        "measured: step 0.1 s, 90 ms predicted (-10%)"
    ], "the prediction arrived after the end of the job"
    console = Console(width=160, file=io.StringIO(), color_system=None)
    console.print(screen(there, now_s=200.0, width=160))
    assert "step 0.1 s, 90 ms predicted (-10%)" in console.file.getvalue()  # pyright: ignore
