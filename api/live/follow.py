"""Live views of a job: apply its event and step streams to a view until it ends, and show it as a screen or lines."""

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
"""Interval of requests for data that no stream contains: phases of ranks, progress of the start."""
_BATCH_S = 0.05
"""Entries that arrive within this time are shown together."""


class Feed(Protocol):
    """Data of a job from the server, as plain data."""

    def job(self) -> Mapping[str, Any]:
        """Return the current state of the job."""
        ...

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield all events as they arrive, until the job ends."""
        ...

    def steps(self) -> Iterator[Mapping[str, Any]]:
        """Yield all step rows as they arrive, including repeated steps, until the job ends."""
        ...


class Display(Protocol):
    """A destination for views."""

    def show(self, view: JobView) -> None:
        """Show `view` instead of the previous one."""
        ...


def follow(feed: Feed, start: JobView, out: Display) -> JobView:
    """Show the job until it ends, and return its last view."""
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
    """Reader of both streams of a job, each in a separate thread."""

    def __init__(self, feed: Feed) -> None:
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._open = 0
        for kind, stream in (("event", feed.events), ("step", feed.steps)):
            self._open += 1
            threading.Thread(target=self._read, args=(kind, stream), daemon=True).start()

    @property
    def is_ended(self) -> bool:
        """True if both streams were read to their ends."""
        return not self._open

    def wait(self, timeout_s: float) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return new events and step rows, shortly after the first one arrives or after `timeout_s`.

        Raises:
            ApiError, ServerUnreachableError: a stream was lost.
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
        except Exception as error:  # raised again in the thread that waits
            self._queue.put(("broken", error))


class Screen(AbstractContextManager["Screen"]):
    """A display on a terminal: a screen that is updated in place. The last view remains at the end."""

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
        """Show `view` at the next refresh."""
        self._view = view

    def _draw(self) -> Any:
        return "" if self._view is None else screen(self._view, now_s=time.time(), width=self._console.width)


class Lines:
    """A display without a terminal: one line for each change, with the time since the start in seconds."""

    def __init__(self, *, prefix: str = "") -> None:
        self._before: JobView | None = None
        self._start = time.monotonic()
        self._prefix = prefix

    def show(self, view: JobView) -> None:
        """Print the changes since the last view."""
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
    """Return a screen if standard output is a terminal, else lines."""
    return Screen(Console()) if sys.stdout.isatty() else nullcontext(Lines())
