"""The part of an agent's report about the places and the activity of its ranks: packed, and only what has changed.

The general codec would take most of a core for the 16,384 ranks of a large job.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from regroup.workers.contract.rank_activity import RankActivity

PHASES = (
    "boot", "join", "build", "restore", "forward", "backward", "optimizer", "snapshot", "validation", "checkpoint",
    "done",
)  # fmt: skip
"""The phases of `messages.Phase`; the index of a phase is its number in a record."""
_NUMBER = {phase: number for number, phase in enumerate(PHASES)}
_RECORD = struct.Struct("<I?BqddIdIddd")


@dataclass(frozen=True)
class ActivityReport:
    """The part of a report about the ranks of a node."""

    is_full: bool = True
    """All ranks of the generation are in it. False: the others are as in the earlier reports to the same supervisor."""
    clock_s: float = 0.0
    """Time of the report by the monotonic clock of the node. An unchanged rank is there for as much longer."""
    records: bytes = b""
    """Records of ranks, as `pack` writes them."""
    first_visits_s: dict[str, float] = field(default_factory=dict[str, float])
    """Phase → the longest that a rank of the node took the first time it was in it."""


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank of a report."""

    rank: int
    is_alive: bool
    activity: RankActivity
    """Activity of the rank. For a dead rank, it has only the step and the phase."""


def pack(records: Iterable[RankRecord]) -> bytes:
    """Return records as bytes."""
    return b"".join(
        _RECORD.pack(
            each.rank,
            each.is_alive,
            _NUMBER[each.activity.phase],
            each.activity.step,
            each.activity.stalled_s,
            each.activity.idle_s,
            each.activity.visits,
            each.activity.usual_s,
            each.activity.measured_steps,
            each.activity.work_s,
            each.activity.ready_s,
            each.activity.earlier_first_s,
        )
        for each in records
    )


def unpack(data: bytes) -> Iterator[RankRecord]:
    """Yield the records in bytes.

    Raises:
        ValueError: the bytes do not end with a whole record, or a phase is unknown.
    """
    if len(data) % _RECORD.size:
        raise ValueError(f"the records of ranks have {len(data)} bytes, not a multiple of {_RECORD.size}")
    for rank, is_alive, phase, step, *rest in _RECORD.iter_unpack(data):
        if phase >= len(PHASES):
            raise ValueError(f"rank {rank} is in phase number {phase} of {len(PHASES)}")
        yield RankRecord(rank, is_alive, RankActivity(step, PHASES[phase], *rest))
