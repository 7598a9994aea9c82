"""Displays of a followed job: a screen on a terminal, lines elsewhere. Both pass on the output of its ranks."""

import os
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from regroup.api.live.job_view import JobView
from regroup.api.live.line_log import describe_changes
from regroup.api.live.output import LineBuffer, OutputSource
from regroup.api.live.screen import screen


class Screen(AbstractContextManager["Screen"]):
    """A display on a terminal: a screen that is updated in place, below the output of the ranks.

    The last view remains at the end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._view: JobView | None = None
        self._buffers: dict[OutputSource, LineBuffer] = {}
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._draw, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for source, buffer in self._buffers.items():
            self._print(source, buffer.end())
        self._live.__exit__(*error)

    def show(self, view: JobView) -> None:
        """Show `view` at the next refresh."""
        self._view = view

    def write(self, source: OutputSource, text: str) -> None:
        """Print the complete lines of more output above the screen; a line that is not complete is part of it."""
        self._print(source, self._buffers.setdefault(source, LineBuffer()).add(text))

    def _print(self, source: OutputSource, lines: list[str]) -> None:
        if lines:
            # Colors stay; other control sequences of the program would move the cursor out of the screen's place.
            shown = Text.from_ansi("\n".join(source.prefix + line for line in lines))
            self._console.print(shown, soft_wrap=True, highlight=False)

    def _draw(self) -> Any:
        if self._view is None:
            return ""
        open_lines = [
            Text.from_ansi(source.prefix + buffer.open_line, no_wrap=True, overflow="ellipsis")
            for source, buffer in self._buffers.items()
            if buffer.open_line
        ]
        return Group(*open_lines, screen(self._view, now_s=time.time(), width=self._console.width))


class Lines(AbstractContextManager["Lines"]):
    """A display without a terminal: one line for each change, with the time since the start in seconds.

    Args:
        prefix: Text before each change.
        file: Destination of the changes; None for standard output. The output of ranks is written to the stream that
            they wrote it to.
    """

    def __init__(self, *, prefix: str = "", file: TextIO | None = None) -> None:
        self._before: JobView | None = None
        self._start = time.monotonic()
        self._prefix = prefix
        self._file = file
        self._is_line_open = False
        """True if the last output of a rank has no line end yet."""
        self._buffers: dict[OutputSource, LineBuffer] = {}

    def __exit__(self, *error: Any) -> None:
        for source, buffer in self._buffers.items():
            self._pass_on(source, "".join(f"{source.prefix}{line}\n" for line in buffer.end()))
        sys.stderr.write(self._line_end())

    def show(self, view: JobView) -> None:
        """Print the changes since the last view."""
        before = self._before
        if before is None or before.name != view.name:  # the first of a job
            before = replace(view, state="", activity="", generation=0, incidents=(), steps=(), checkpoint_step=None)
            self.print_line(view.name if view.steps_total is None else f"{view.name}, {view.steps_total} steps")
        for line in describe_changes(before, view):
            self.print_line(line)
        self._before = view

    def write(self, source: OutputSource, text: str) -> None:
        """Pass on more output: as it is, or line by line if it gets a prefix."""
        if not source.prefix:
            self._pass_on(source, text)
            return
        lines = self._buffers.setdefault(source, LineBuffer()).add(text)
        self._pass_on(source, "".join(f"{source.prefix}{line}\n" for line in lines))

    def print_line(self, line: str) -> None:
        """Print one line."""
        text = f"[{time.monotonic() - self._start:6.1f} s] {self._prefix}{line}\n"
        file = self._file or sys.stdout
        file.write(self._line_end() + text)
        file.flush()

    def _pass_on(self, source: OutputSource, text: str) -> None:
        file = sys.stderr if source.stream == "stderr" else sys.stdout
        file.write(text)
        file.flush()
        if text:
            self._is_line_open = not text.endswith("\n")

    def _line_end(self) -> str:
        """Return the end of a line that a program left open, if it is where the next line goes, too."""
        is_open, self._is_line_open = self._is_line_open, False
        return "\n" if is_open and _is_one_destination() else ""


def _is_one_destination() -> bool:
    """Return True if standard output and standard error are the same file or terminal."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # a stream without a file
        return False


def display(*, output: bool = False) -> AbstractContextManager[Screen | Lines]:
    """Return a screen if standard output is a terminal, else lines.

    Args:
        output: Ranks' output is shown too. Then lines about the job are on standard error, so that standard output has
            only what the program printed.
    """
    if sys.stdout.isatty():
        return Screen(Console())
    return Lines(file=sys.stderr if output else None)
