"""Following a job to its end: reads what is new, folds it into the view, shows it as a screen or as lines."""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live

from regroup.api.cli.lines import changes
from regroup.api.cli.screen import screen
from regroup.api.cli.view import JobView, add_steps, fold, with_job

_POLL_S = 0.2
_SLOW_POLL_S = 1.0
_QUICK_S = 0.5
"""Answers slower than this halve the pace, so that watching never loads a busy server."""


class Feed(Protocol):
    """What following needs of a server, as plain data."""

    def job(self) -> Mapping[str, Any]:
        """The job as it is now."""
        ...

    def events(self, after: int) -> list[Mapping[str, Any]]:
        """All events numbered above `after`, in order."""
        ...

    def steps(self, after: int) -> list[Mapping[str, Any]]:
        """All committed steps above step `after`, in order."""
        ...


class Show(Protocol):
    """Where a view is shown."""

    def show(self, view: JobView) -> None:
        """Show `view` in place of the one before."""
        ...


@dataclass(frozen=True)
class Followed:
    """A view and how much of the job's history is in it."""

    view: JobView
    event: int = 0


def read_on(feed: Feed, so_far: Followed) -> Followed:
    """`so_far` with everything new."""
    job = feed.job()
    view, number = so_far.view, so_far.event
    for event in feed.events(number):
        view, number = fold(view, event), int(event["number"])
    return Followed(with_job(add_steps(view, feed.steps(view.step)), job), number)


def follow(feed: Feed, start: JobView, out: Show) -> JobView:
    """Show the job until it is over; returns its last view."""
    so_far = Followed(start)
    while True:
        begun = time.monotonic()
        so_far = read_on(feed, so_far)
        out.show(so_far.view)
        if so_far.view.over:
            return so_far.view
        time.sleep(_POLL_S if time.monotonic() - begun < _QUICK_S else _SLOW_POLL_S)


class Screen(AbstractContextManager["Screen"]):
    """A terminal: the whole screen, drawn anew, with the last view left standing at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._view: JobView | None = None
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._draw, transient=False)

    def __enter__(self) -> "Screen":
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def show(self, view: JobView) -> None:
        """Show `view` from now on."""
        self._view = view

    def _draw(self) -> Any:
        return "" if self._view is None else screen(self._view, now_s=time.time(), width=self._console.width)


class Lines:
    """No terminal: a line for everything new, with the seconds since the first."""

    def __init__(self, *, prefix: str = "") -> None:
        self._before: JobView | None = None
        self._start = time.monotonic()
        self._prefix = prefix

    def show(self, view: JobView) -> None:
        """Print what is new since the last view."""
        before = self._before
        if before is None or before.name != view.name:  # the first of a job
            before = replace(view, state="", activity="", generation=0, incidents=(), steps=(), checkpoint_step=None)
            self.say(f"{view.name}, {view.steps_total} steps")
        for line in changes(before, view):
            self.say(line)
        self._before = view

    def say(self, line: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._start:6.1f} s] {self._prefix}{line}", flush=True)


def display() -> AbstractContextManager[Screen | Lines]:
    """A screen on a terminal, lines elsewhere."""
    return Screen(Console()) if sys.stdout.isatty() else nullcontext(Lines())
