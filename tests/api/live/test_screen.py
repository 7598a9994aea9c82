from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from regroup.api.live.job_view import JobView, Rank, apply_job, apply_steps
from regroup.api.live.screen import screen


def drawn(view: JobView, *, now_s: float = 115.3, width: int = 110) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: PTH123,SIM115
    console.print(screen(view, now_s=now_s, width=width))
    return console.export_text()


def test_the_board_is_shown_before_the_first_rank(story) -> None:
    text = drawn(story.view([]))
    assert "pretrain-cpython" in text and "starting Ray" in text and "step 0/300" in text
    assert "loss" not in text, "a curve without numbers"
    assert "node-1 □ 0 waiting □ 1 waiting" in text and "node-2 □ 2 waiting □ 3 waiting" in text


def test_a_kill_is_shown_on_the_board_with_its_phases(story) -> None:
    text = drawn(story.view(story.until_the_kill))
    assert "✖ 1 dead" in text and "□ 0 ended" in text
    assert "SIGKILL of rank 1 after step 149  dead, recovering 0.3 s" in text
    assert "  seen 20 ms  dead 40 ms  formed …  restored …  first step …" in text
    assert "step 149/300 · 15 s left" in text
    assert "20.5k tokens/s · dp_shard=4 · generation 1" in text
    assert "loss 2.084 · held-out 2.387" in text


def test_a_checkpoint_that_is_written_has_a_line(story) -> None:
    view = story.view(story.until_the_kill)
    progress = "writing checkpoint of step 40: 1.2 of 4.0 GB, 310 MB/s"
    lines = drawn(replace(view, save=progress)).splitlines()
    assert [line.strip() for line in lines if "checkpoint" in line] == [progress]
    assert "checkpoint" not in drawn(view)


def test_a_recovery_is_shown_in_one_line(story) -> None:
    text = drawn(story.view([*story.until_the_kill, *story.the_return]))
    assert "first step 0.8 s" in text and "recovered in 0.8 s, 0 steps lost" in text
    assert "■ 1 training" in text and "✖" not in text


def test_the_curve_ends_at_the_newest_step_and_marks_the_incident(story) -> None:
    lines = drawn(story.view(story.until_the_kill)).splitlines()
    assert sum("┊" in line for line in lines) >= 5
    assert any(line.startswith("│   5.41 ⢣") for line in lines)


def test_the_screen_fits_a_narrow_terminal(story) -> None:
    for width in (80, 100, 200):
        text = drawn(story.view([*story.until_the_kill, *story.the_return]), width=width)
        assert max(len(line) for line in text.splitlines()) <= width


def test_a_failure_shows_its_error(story) -> None:
    failed = story.state("FAILED", "user_error", error={"kind": "ValueError", "message": "shapes differ"})
    assert "ValueError: shapes differ" in drawn(story.view([failed]))


FIGURES = {"step_s": 0.1, "peak_bytes": 2.0**30, "bubble": None}
FORETOLD = {"predicted": {**FIGURES, "step_s": 0.02}, "measured": FIGURES, "relative_error": {"step_s": -0.8}}


def job(kind: str, device: str = "cpu", **fields: Any) -> dict[str, Any]:
    return {"id": "j1", "name": "n", "spec": {"workload": {"kind": kind}, "resources": {"device": device}}, **fields}


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_the_bar_stays_and_nothing_is_cut_when_figures_arrive(story, width: int) -> None:
    view = story.view(story.until_the_kill[:-1])
    busy = replace(view, steps=tuple(replace(step, mfu=0.34) for step in view.steps))
    prediction = {**FORETOLD, "probe_job_id": "job_2"}
    text = drawn(apply_job(busy, job("builtin", "cuda", prediction=prediction)), width=width)
    lines = text.splitlines()
    (progress,) = [line for line in lines if "step 149/300" in line]
    assert progress.count("━") >= 4, progress
    assert "…" not in text and max(map(len, lines)) <= width
    shown = " · ".join(lines[2 : lines.index(next(line for line in lines if line.startswith("╭")))])
    for figure in ("20.5k tokens/s", "MFU 34%", "step 0.1 s, 20 ms predicted (-80%)", "dp_shard=4", "generation 1"):
        assert figure in shown


def test_a_prediction_without_a_probe_is_not_shown(story) -> None:
    view = story.view(story.until_the_kill[:-1])
    text = drawn(apply_job(view, job("builtin", prediction={**FORETOLD, "probe_job_id": None})))
    assert "predicted" not in text and "step 0.1 s" in text


def test_the_utilization_of_a_cpu_is_not_shown_and_that_of_a_gpu_does_not_flicker(story) -> None:
    view = story.view(story.until_the_kill[:-1])
    restless = replace(view, steps=tuple(replace(s, mfu=0.04 if s.step % 3 else 0.34) for s in view.steps))
    assert "MFU" not in drawn(apply_job(restless, job("builtin", "cpu")))
    assert "MFU 4%" in drawn(apply_job(restless, job("builtin", "cuda")))


def test_a_script_shows_its_number_of_ranks_and_no_empty_curve(story) -> None:
    steps = [{"generation": 1, "time_s": float(n), "step": n, "loss": None, "tokens": None} for n in range(1, 9)]
    view = apply_steps(story.after(JobView("j1", "n", None), story.generation(1)), steps)
    text = drawn(apply_job(view, job("script")))
    assert "4 ranks · generation 1" in text and "dp_shard" not in text
    assert "loss" not in text and "·····" not in text and "step 8" in text


def test_many_nodes_do_not_fill_the_terminal() -> None:
    ranks = tuple(Rank(number, f"node-{number}", "forward", True) for number in range(500))
    text = drawn(JobView("j1", "n", None, ranks=ranks), width=80)
    assert "and 488 more nodes" in text and len(text.splitlines()) < 20
