from rich.console import Console

from regroup.api.live.job_view import JobView
from regroup.api.live.screen import screen


def drawn(view: JobView, *, now_s: float = 115.3, width: int = 110) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: PTH123,SIM115
    console.print(screen(view, now_s=now_s, width=width))
    return console.export_text()


def test_the_board_is_shown_before_the_first_rank(story) -> None:
    text = drawn(story.view([]))
    assert "pretrain-cpython" in text and "starting Ray" in text and "step 0/300" in text and "loss –" in text
    assert "node-1 □ 0 waiting □ 1 waiting" in text and "node-2 □ 2 waiting □ 3 waiting" in text


def test_a_kill_is_shown_on_the_board_with_its_phases(story) -> None:
    text = drawn(story.view(story.until_the_kill))
    assert "✖ 1 dead" in text and "□ 0 ended" in text
    assert "SIGKILL of rank 1 after step 149  dead, recovering 0.3 s" in text
    assert "  seen 20 ms  dead 40 ms  formed …  restored …  first step …" in text
    assert "step 149/300 · 15 s left · 20.5k tokens/s · dp_shard=4 · generation 1" in text
    assert "loss 2.084 · held-out 2.387" in text


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
