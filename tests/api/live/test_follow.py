import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console

from regroup.api.client.connection.errors import ServerUnreachableError
from regroup.api.live.display import Lines, Screen
from regroup.api.live.follow import follow
from regroup.api.live.job_view import JobView
from regroup.api.live.output import OutputSource
from regroup.service.domain.errors import NotFoundError


class FakeFeed:
    """A feed whose streams yield some entries, wait until `go` is set, and yield the rest."""

    def __init__(self, things: list[dict[str, Any]], *, first: int = 0) -> None:
        self.things = [{**thing, "number": number} for number, thing in enumerate(things, 1)]
        self.first = first
        self.go = threading.Event()
        self.requested: list[str] = []

    def job(self) -> Mapping[str, Any]:
        return {"id": "j1", "name": "pretrain-cpython", "state": "RUNNING"}

    def _read_stream(self, what: str) -> Iterator[dict[str, Any]]:
        self.requested.append(what)
        for thing in self.things:
            if thing["number"] > self.first:
                assert self.go.wait(20)
            if (thing["type"] == "step") == (what == "steps"):
                yield thing

    def events(self) -> Iterator[Mapping[str, Any]]:
        return self._read_stream("events")

    def steps(self) -> Iterator[Mapping[str, Any]]:
        return (thing["data"] for thing in self._read_stream("steps"))


class RecordedViews:
    def __init__(self) -> None:
        self.views: list[JobView] = []
        self.shown = threading.Condition()

    def show(self, view: JobView) -> None:
        with self.shown:
            self.views.append(view)
            self.shown.notify_all()

    def write(self, source: OutputSource, text: str) -> None:
        raise AssertionError("no output was requested")

    def until(self, is_there: Callable[[JobView], bool]) -> None:
        with self.shown:
            assert self.shown.wait_for(lambda: bool(self.views) and is_there(self.views[-1]), 20)


@pytest.fixture
def whole(story) -> list[dict[str, Any]]:
    return [*story.until_the_kill, *story.the_return, story.state("SUCCEEDED", "completed")]


def test_a_job_is_followed_to_its_end_with_one_request_per_stream(story, whole) -> None:
    out, feed = RecordedViews(), FakeFeed(whole, first=len(whole))
    last = follow(feed, story.view([]), out)
    assert last.is_over and last.job_id == "j1" and last.step == 150 and last.incidents[0].is_over
    assert sorted(feed.requested) == ["events", "steps"]
    assert [view.step for view in out.views] == sorted(view.step for view in out.views)


def test_entries_are_shown_while_the_stream_is_open(story, whole) -> None:
    out, feed = RecordedViews(), FakeFeed(whole, first=len(story.until_the_kill))
    following = threading.Thread(target=follow, args=(feed, story.view([]), out))
    following.start()
    out.until(lambda view: view.step == 149 and bool(view.incidents))
    assert not out.views[-1].incidents[0].is_over and not feed.go.is_set()
    feed.go.set()
    out.until(lambda view: view.is_over and view.step == 150)
    following.join(20)
    assert not following.is_alive()


def test_an_error_of_a_stream_ends_the_follower(story, whole) -> None:
    class Broken(FakeFeed):
        def steps(self) -> Iterator[Mapping[str, Any]]:
            raise ServerUnreachableError("gone for two minutes")

    with pytest.raises(ServerUnreachableError, match="two minutes"):
        follow(Broken(whole), story.view([]), RecordedViews())


def test_without_a_terminal_each_line_has_its_time(story, whole, capsys: pytest.CaptureFixture[str]) -> None:
    follow(FakeFeed(whole, first=len(whole)), story.view([]), Lines())
    feed = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[   0.") for line in feed)
    texts = [line.partition("] ")[2] for line in feed]
    assert texts.count("  recovered in 0.8 s, 0 steps lost") == 1
    assert any(text.startswith("state SUCCEEDED") for text in texts)


def test_a_terminal_shows_the_screen_and_the_last_view_remains(story) -> None:
    console = Console(width=100, height=40, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with Screen(console) as out:
        out.show(story.view([]))
        out.show(story.view([*story.until_the_kill, *story.the_return]))
    assert "recovered in 0.8 s, 0 steps lost" in console.export_text()


class Speaking(FakeFeed):
    """A job whose rank 0 prints, and whose rank 1 has no log."""

    def output(self, source: OutputSource) -> Iterator[str]:
        if source.rank:
            raise NotFoundError("no log of rank 1")
        yield "one\n"
        assert self.go.wait(20)
        yield "two\n"


def test_the_output_of_ranks_is_passed_on_and_a_missing_one_does_not_end_the_view(story, whole) -> None:
    written: list[tuple[int, str]] = []

    class Out(RecordedViews):
        def write(self, source: OutputSource, text: str) -> None:
            written.append((source.rank, text))
            if text == "one\n":
                feed.go.set()

    feed = Speaking(whole, first=len(whole))
    last = follow(feed, story.view([]), Out(), [OutputSource(0), OutputSource(1)])
    assert last.is_over
    assert [text for rank, text in written if rank == 0] == ["one\n", "two\n"]
    assert (1, "[no more stdout of rank 1: no log of rank 1]\n") in written
