"""The output that `regroup run` shows: torchrun's `--tee`, `--redirects` and `--local-ranks-filter`. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from regroup.api.live.output import OutputSource

TEED_RANKS = 32
"""Largest number of ranks whose output is shown at once: two streams each, of the 100 connections of a client."""
_STREAMS: Mapping[str, Collection[str]] = {"0": (), "1": ("stdout",), "2": ("stderr",), "3": ("stdout", "stderr")}
"""torchrun's number → streams."""
_NUMBERS = "0 (none), 1 (stdout), 2 (stderr) or 3 (both)"
_MAX_DIGITS = 6


@dataclass(frozen=True)
class StreamChoice:
    """Output streams for each rank of a node."""

    of_all: Collection[str] = ()
    """Streams of the ranks that `by_rank` does not have."""
    by_rank: Mapping[int, Collection[str]] = field(default_factory=dict[int, Collection[str]])
    """Number of a rank on its node → streams."""

    def of(self, local_rank: int) -> Collection[str]:
        """Return the streams of a rank."""
        return self.by_rank.get(local_rank, self.of_all)


@dataclass(frozen=True)
class OutputChoice:
    """Values of the three options. By default, the output of rank 0 is shown."""

    tee: StreamChoice = StreamChoice()
    """Streams that are shown, each line with the number of its rank."""
    redirects: StreamChoice = StreamChoice()
    """Streams that are not shown, unless `tee` has them."""
    only: Collection[int] | None = None
    """Numbers on their nodes of the ranks that are shown; None for rank 0 and those of `tee`."""


def parse_streams(text: str) -> StreamChoice:
    """Return the value of `--tee` or `--redirects`: one number for all ranks, or `RANK:NUMBER` for some.

    Raises:
        ValueError: it has another form; the message states the accepted ones.
    """
    if ":" not in text:
        return StreamChoice(of_all=_streams(text))
    by_rank: dict[int, Collection[str]] = {}
    for part in text.split(","):
        rank, _, number = part.partition(":")
        by_rank[_rank(rank, part, "RANK:NUMBER, for example 0:3,1:2")] = _streams(number)
    return StreamChoice(by_rank=by_rank)


def parse_ranks(text: str) -> frozenset[int]:
    """Return the value of `--local-ranks-filter`: numbers of ranks, separated by commas.

    Raises:
        ValueError: it has another form; the message states the accepted one.
    """
    return frozenset(
        _rank(part, part, "a rank; write numbers separated by commas, for example 0,1") for part in text.split(",")
    )


def choose_sources(choice: OutputChoice, ranks: int, ranks_per_node: int) -> tuple[OutputSource, ...]:
    """Return the streams to show, of at most `TEED_RANKS` ranks.

    Args:
        choice: Values of the options.
        ranks: Number of ranks of the job.
        ranks_per_node: Number of consecutive ranks that count as those of one node.
    """
    chosen: list[tuple[int, str, bool]] = []
    shown: set[int] = set()
    for rank in range(ranks):
        if len(shown) == TEED_RANKS:
            break
        local_rank = rank % ranks_per_node
        if choice.only is not None and local_rank not in choice.only:
            continue
        for stream in ("stdout", "stderr"):
            is_teed = stream in choice.tee.of(local_rank)
            is_default = rank == 0 if choice.only is None else True
            if is_teed or (is_default and stream not in choice.redirects.of(local_rank)):
                chosen.append((rank, stream, is_teed))
                shown.add(rank)
    needs_prefix = len(shown) > 1 and choice.only is not None
    return tuple(
        OutputSource(rank, stream, f"[rank{rank}] " if is_teed or needs_prefix else "")
        for rank, stream, is_teed in chosen
    )


def _streams(number: str) -> Collection[str]:
    if number not in _STREAMS:
        raise ValueError(f"{number[:40]!r} is not one of {_NUMBERS}")
    return _STREAMS[number]


def _rank(text: str, part: str, form: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise ValueError(f"{part[:40]!r} is not {form}")
    return int(text)
