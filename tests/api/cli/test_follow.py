from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from regroup.api.cli.follow import Followed, Lines, Screen, follow, read_on
from regroup.api.cli.view import JobView


class Told:
    """A feed that has told its first `known` things, and `more` of them each time it is asked anew."""

    def __init__(self, things: list[dict[str, Any]], *, known: int, more: int = 0) -> None:
        self.things = [{**thing, "number": number} for number, thing in enumerate(things, 1)]
        self.known = known
        self.more = more

    def job(self) -> Mapping[str, Any]:
        return {"id": "j1", "name": "pretrain-cpython", "state": "RUNNING"}

    def events(self, after: int) -> list[Mapping[str, Any]]:
        self.known += self.more
        told = self.things[: self.known]
        return [thing for thing in told if thing["type"] != "step" and thing["number"] > after]

    def steps(self, after: int) -> list[Mapping[str, Any]]:
        told = self.things[: self.known]
        return [thing["data"] for thing in told if thing["type"] == "step" and thing["data"]["step"] > after]


class Kept:
    def __init__(self) -> None:
        self.views: list[JobView] = []

    def show(self, view: JobView) -> None:
        self.views.append(view)


@pytest.fixture
def whole(story) -> list[dict[str, Any]]:
    return [*story.until_the_kill, *story.the_return, story.state("SUCCEEDED", "completed")]


def test_everything_new_is_read_once(story, whole) -> None:
    told = Told(whole, known=len(whole))
    read = read_on(told, Followed(story.view([])))
    assert read.view.step == 150 and read.view.state == "SUCCEEDED" and read.view.job_id == "j1"
    assert read.event == len(whole)
    assert read_on(told, read) == read, "nothing new changes nothing"


def test_it_follows_to_the_end_and_shows_every_stage(story, whole) -> None:
    out = Kept()
    last = follow(Told(whole, known=0, more=80), story.view([]), out)
    assert last.over and last.step == 150 and last.incidents[0].over
    assert [view.step for view in out.views] == sorted(view.step for view in out.views)
    assert len(out.views) == 2 and out.views[0].state == "RUNNING"


def test_without_a_terminal_a_line_each_with_its_time(story, whole, capsys: pytest.CaptureFixture[str]) -> None:
    follow(Told(whole, known=len(whole)), story.view([]), Lines())
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[   0.") for line in lines)
    texts = [line.partition("] ")[2] for line in lines]
    assert texts.count("  back in 0.8 s, 0 steps lost") == 1
    assert any(text.startswith("state SUCCEEDED") for text in texts)


def test_a_terminal_gets_the_screen_and_keeps_the_last_view(story) -> None:
    console = Console(width=100, height=40, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with Screen(console) as out:
        out.show(story.view([]))
        out.show(story.view([*story.until_the_kill, *story.the_return]))
    assert "back in 0.8 s, 0 steps lost" in console.export_text()
