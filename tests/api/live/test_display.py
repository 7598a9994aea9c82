"""Output of ranks on a terminal and in a pipe. The streams of this process are replaced by files."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from regroup.api.live.display import Lines, Screen
from regroup.api.live.job_view import JobView
from regroup.api.live.output import OutputSource

OUT, ERR = OutputSource(0, "stdout"), OutputSource(0, "stderr")
RANK_1 = OutputSource(1, "stdout", "[rank1] ")
VIEW = JobView("j1", "mine", None, workload="script", state="RUNNING")


def test_the_output_of_a_program_is_passed_on_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(file=sys.stderr) as out:
        out.show(VIEW)
        out.write(OUT, "a\r\x1b[1mb\n")
        out.write(ERR, "warning\n")
        out.write(OUT, "half")
    shown = capsys.readouterr()
    assert shown.out == "a\r\x1b[1mb\nhalf"
    assert shown.err.endswith("warning\n") and "mine" in shown.err and "state RUNNING" in shown.err


def test_prefixed_output_is_passed_on_by_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(file=sys.stderr) as out:
        out.write(RANK_1, "one\ntw")
        out.write(OUT, "other\n")
        out.write(RANK_1, "o\nend")
    assert capsys.readouterr().out == "[rank1] one\nother\n[rank1] two\n[rank1] end\n"


def test_a_line_that_a_program_leaves_open_ends_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "both"
    with path.open("w") as both, path.open("a") as again:
        monkeypatch.setattr(sys, "stdout", both)
        monkeypatch.setattr(sys, "stderr", again)
        with Lines(file=again) as out:
            out.write(OUT, "no end")
            out.show(replace(VIEW, state=""))
    assert path.read_text().splitlines()[0] == "no end"


def test_complete_lines_are_above_the_screen_and_an_open_one_is_part_of_it() -> None:
    written = io.StringIO()
    console = Console(width=60, height=24, force_terminal=True, record=True, file=written)
    with Screen(console) as out:
        out.show(VIEW)
        out.write(OUT, "first \x1b[31mred\x1b[0m\n" + "x" * 100 + "\n 10%")
        out.write(OUT, "\r 20%\x1b[5A")
        assert [buffer.open_line for buffer in out._buffers.values()] == [" 20%\x1b[5A"]
        out.write(RANK_1, "other\n")
    text = console.export_text()
    lines = [line.rstrip() for line in text.splitlines()]
    assert "first red" in lines and "[rank1] other" in lines
    assert "x" * 100 in text.replace("\n", ""), "a long line is not cut"
    assert text.index("first red") < text.rindex("mine"), "the screen stays below"
    assert "\x1b[5A" not in written.getvalue(), "a program does not move the cursor of the screen"
