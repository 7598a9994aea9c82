"""Following a job to its end: folds what its streams bring into the view, shows it as a screen or as lines."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live

from regroup.api.live.job_view import JobView, apply_event, apply_job, apply_steps
from regroup.api.live.line_log import describe_changes
from regroup.api.live.screen import screen

_POLL_S = 1.0
"""What no stream tells is asked so often: what each rank is at, how far starting is."""
_BATCH_S = 0.05
"""What comes within this is shown at once."""


class Feed(Protocol):
    """What following needs of a server, as plain data."""

    def job(self) -> Mapping[str, Any]:
        """The job as it is now."""
        ...

    def events(self) -> Iterator[Mapping[str, Any]]:
        """All events as they come, until the job is over."""
        ...

    def steps(self) -> Iterator[Mapping[str, Any]]:
        """All step rows as they come, those done again too, until the job is over."""
        ...


class Display(Protocol):
    """Where a view is shown."""

    def show(self, view: JobView) -> None:
        """Show `view` in place of the one before."""
        ...


def follow(feed: Feed, start: JobView, out: Display) -> JobView:
    """Show the job until it is over; returns its last view."""
    reader = _StreamReader(feed)
    view = apply_job(start, feed.job())
    polled_s = time.monotonic()
    while not reader.is_ended:
        events, steps = reader.wait(max(_BATCH_S, polled_s + _POLL_S - time.monotonic()))
        for event in events:
            view = apply_event(view, event)
        view = apply_steps(view, steps)
        if time.monotonic() - polled_s >= _POLL_S or reader.is_ended:
            view, polled_s = apply_job(view, feed.job()), time.monotonic()
        out.show(view)
    return view


class _StreamReader:
    """Both streams of a job, each read by a thread of its own."""

    def __init__(self, feed: Feed) -> None:
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._open = 0
        for kind, stream in (("event", feed.events), ("step", feed.steps)):
            self._open += 1
            threading.Thread(target=self._read, args=(kind, stream), daemon=True).start()

    @property
    def is_ended(self) -> bool:
        """Both streams have been read to their ends."""
        return not self._open

    def wait(self, timeout_s: float) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Events and step rows that have come, shortly after the first of them, at the latest after `timeout_s`.

        Raises:
            ApiError, ServerUnreachableError: a stream broke off.
        """
        found: dict[str, list[Mapping[str, Any]]] = {"event": [], "step": []}
        until_s = time.monotonic() + timeout_s
        with suppress(Empty):
            while self._open and (left_s := until_s - time.monotonic()) > 0:
                kind, item = self._queue.get(timeout=left_s)
                if kind == "broken":
                    raise item
                if kind == "end":
                    self._open -= 1
                else:
                    found[kind].append(item)
                until_s = min(until_s, time.monotonic() + _BATCH_S)
        return found["event"], found["step"]

    def _read(self, kind: str, stream: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        try:
            for item in stream():
                self._queue.put((kind, item))
            self._queue.put(("end", None))
        except Exception as error:  # goes on in the thread that waits
            self._queue.put(("broken", error))


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
            self.print_line(view.name if view.steps_total is None else f"{view.name}, {view.steps_total} steps")
        for line in describe_changes(before, view):
            self.print_line(line)
        self._before = view

    def print_line(self, line: str) -> None:
        """Print one line."""
        print(f"[{time.monotonic() - self._start:6.1f} s] {self._prefix}{line}", flush=True)


def display() -> AbstractContextManager[Screen | Lines]:
    """A screen on a terminal, lines elsewhere."""
    return Screen(Console()) if sys.stdout.isatty() else nullcontext(Lines())
