"""Output of a job's ranks: which streams are shown, and how their text becomes lines. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class OutputSource:
    """One output stream of one rank."""

    rank: int
    stream: str = "stdout"
    """`stdout` or `stderr`."""
    prefix: str = ""
    """Text before each line, e.g. `[rank1] `."""


RANK_0: Sequence[OutputSource] = (OutputSource(0, "stdout"), OutputSource(0, "stderr"))
"""Both streams of rank 0, without prefixes, as `regroup run` shows them by default."""


class LineBuffer:
    """Cuts text that arrives in pieces into lines. A carriage return replaces the line before it, as on a terminal."""

    def __init__(self) -> None:
        self._rest = ""

    @property
    def open_line(self) -> str:
        """The line that has not ended yet, as a terminal would show it."""
        return _overwritten(self._rest)

    def add(self, text: str) -> list[str]:
        """Return the lines that `text` ends."""
        *lines, self._rest = (self._rest + text).split("\n")
        if "\r" in self._rest:
            self._rest = self.open_line + ("\r" if self._rest.endswith("\r") else "")
        return [_overwritten(line) for line in lines]

    def end(self) -> list[str]:
        """Return the last line if it has not ended."""
        line, self._rest = self.open_line, ""
        return [line] if line else []


def _overwritten(line: str) -> str:
    """Return the text after the last carriage return that text follows."""
    return next((part for part in reversed(line.split("\r")) if part), "")
