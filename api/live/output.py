"""Output of a job's ranks: which streams are shown, and how their text becomes lines. Pure."""

from collections.abc import Collection, Mapping, Sequence
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


_TEED: Mapping[int, Sequence[str]] = {0: (), 1: ("stdout",), 2: ("stderr",), 3: ("stdout", "stderr")}
"""Number of torchrun's `--tee` → streams."""
TEED_RANKS = 64
"""Largest number of ranks whose output is shown at once. `regroup logs` shows the others."""


def tee_sources(tee: str, ranks: int, only: Collection[int] | None = None) -> tuple[OutputSource, ...]:
    """Return the streams that torchrun's `--tee` shows, each line with the number of its rank.

    Args:
        tee: One of 0 to 3 for all ranks, or `RANK:NUMBER` for some, separated by commas. 1 is stdout, 2 stderr, 3 both.
        ranks: Number of ranks.
        only: Ranks to show (`--local-ranks-filter`); None for all.

    Raises:
        ValueError: `tee` has another form.
    """
    chosen: dict[int, Sequence[str]] = {}
    if ":" not in tee:
        chosen = dict.fromkeys(range(min(ranks, TEED_RANKS)), _TEED[_tee_number(tee)])
    else:
        for part in tee.split(","):
            rank, _, number = part.partition(":")
            if not rank.strip().isdecimal():
                raise ValueError(f"{part!r} is not RANK:NUMBER, for example 0:3")
            chosen[int(rank)] = _TEED[_tee_number(number)]
    return tuple(
        OutputSource(rank, stream, f"[rank{rank}] ")
        for rank, streams in sorted(chosen.items())
        if rank < ranks and (only is None or rank in only)
        for stream in streams
    )


def _tee_number(text: str) -> int:
    if text.strip() not in ("0", "1", "2", "3"):
        raise ValueError(f"{text!r} is not one of 0 (none), 1 (stdout), 2 (stderr), 3 (both)")
    return int(text)


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
