"""Follow a job: apply its event and step streams to a view until it ends, and pass on the output of its ranks."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from regroup.api.live.job_view import JobView, apply_event, apply_job, apply_steps
from regroup.api.live.output import OutputSource
from regroup.service.domain.errors import RegroupError

_POLL_S = 1.0
"""Interval of requests for data that no stream contains: phases of ranks, progress of the start."""
_LAST_OUTPUT_S = 30.0
"""Longest wait for the rest of the output of a job that has ended."""
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

    def output(self, source: OutputSource) -> Iterator[str]:
        """Yield the text of an output stream as it arrives, until the job ends."""
        ...


class Display(Protocol):
    """A destination for views."""

    def show(self, view: JobView) -> None:
        """Show `view` instead of the previous one."""
        ...

    def write(self, source: OutputSource, text: str) -> None:
        """Show more output of a rank."""
        ...


@dataclass(frozen=True)
class _Arrived:
    """The items that the streams delivered within one interval."""

    events: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    steps: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    output: list[tuple[OutputSource, str]] = field(default_factory=list[tuple[OutputSource, str]])


def follow(feed: Feed, start: JobView, out: Display, sources: Sequence[OutputSource] = ()) -> JobView:
    """Show the job and the output of `sources` until it ends, and return its last view."""
    reader = _StreamReader(feed, sources)
    view = apply_job(start, feed.job())
    polled_s = time.monotonic()
    ended_s: float | None = None
    while not reader.is_ended:
        arrived = reader.wait(max(_BATCH_S, polled_s + _POLL_S - time.monotonic()))
        for event in arrived.events:
            view = apply_event(view, event)
        view = apply_steps(view, arrived.steps)
        for source, text in arrived.output:
            out.write(source, text)
        if time.monotonic() - polled_s >= _POLL_S or reader.is_job_ended:
            view, polled_s = apply_job(view, feed.job()), time.monotonic()
        out.show(view)
        if reader.is_job_ended:
            ended_s = ended_s or time.monotonic()
            if time.monotonic() - ended_s > _LAST_OUTPUT_S:
                break
    return view


class _StreamReader:
    """Reader of all streams of a job, each in a separate thread."""

    def __init__(self, feed: Feed, sources: Sequence[OutputSource]) -> None:
        self._queue: SimpleQueue[tuple[str | OutputSource, str, Any]] = SimpleQueue()
        self._open: set[str | OutputSource] = {"event", "step", *sources}
        streams: list[tuple[str | OutputSource, Callable[[], Iterable[Any]]]] = [
            ("event", feed.events),
            ("step", feed.steps),
        ]
        streams += [(source, lambda source=source: feed.output(source)) for source in sources]
        for kind, stream in streams:
            threading.Thread(target=self._read, args=(kind, stream), daemon=True).start()

    @property
    def is_job_ended(self) -> bool:
        """True if the streams of events and steps were read to their ends."""
        return not {"event", "step"} & self._open

    @property
    def is_ended(self) -> bool:
        """True if all streams were read to their ends."""
        return not self._open

    def wait(self, timeout_s: float) -> _Arrived:
        """Return what is new, shortly after the first entry arrives or after `timeout_s`.

        Raises:
            ApiError, ServerUnreachableError: a stream was lost.
        """
        found = _Arrived()
        until_s = time.monotonic() + timeout_s
        with suppress(Empty):
            while self._open and (left_s := until_s - time.monotonic()) > 0:
                kind, what, item = self._queue.get(timeout=left_s)
                if what == "broken":
                    raise item
                if what == "end":
                    self._open.discard(kind)
                elif isinstance(kind, OutputSource):
                    found.output.append((kind, item))
                elif kind == "event":
                    found.events.append(item)
                else:
                    found.steps.append(item)
                until_s = min(until_s, time.monotonic() + _BATCH_S)
        return found

    def _read(self, kind: str | OutputSource, stream: Callable[[], Iterable[Any]]) -> None:
        try:
            for item in stream():
                self._queue.put((kind, "item", item))
            self._queue.put((kind, "end", None))
        except RegroupError as error:
            if isinstance(kind, OutputSource):  # the job continues, and so does its view
                shown = replace(kind, stream="stderr")
                self._queue.put((shown, "item", f"[no more {kind.stream} of rank {kind.rank}: {error}]\n"))
                self._queue.put((kind, "end", None))
            else:
                self._queue.put((kind, "broken", error))
        except Exception as error:  # raised again in the thread that waits
            self._queue.put((kind, "broken", error))
