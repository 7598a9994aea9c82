"""Reduce the memory of mirrors while nodes are short of memory, and restore it later. Pure."""

from dataclasses import dataclass, replace
from enum import IntEnum

_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 1800.0
STILL_SHORT_S = 15.0
"""Time at one level after which a continuing shortage lowers the level again."""


class MirrorLevel(IntEnum):
    """Number of mirror sets that a node may hold for another node during a transfer."""

    NONE = 0
    """No mirrors. Existing sets are released."""
    ONE = 1
    """The old set is released before the next one is sent. During the transfer there is no complete mirror."""
    TWO = 2
    """The old set is retained until the next one is complete."""


@dataclass(frozen=True)
class MirrorAllowance:
    """Current memory allowance for mirrors."""

    level: MirrorLevel = MirrorLevel.TWO
    why: str = ""
    """Reason of the reduction, for people."""
    since_s: float = 0.0
    """Time of the last reduction."""
    pause_s: float = _PAUSE_S
    """Time after the reduction at which the next level is tried again."""

    @property
    def is_reduced(self) -> bool:
        """True if the allowance is below the maximum."""
        return self.level is not MirrorLevel.TWO


def lower_allowance(allowed: MirrorAllowance, why: str, now_s: float) -> MirrorAllowance:
    """Lower the allowance after a node could not hold a set or reported a memory shortage.

    The pause before the next increase doubles with each reduction, up to half an hour, so that a node at its limit is
    not overloaded every minute.
    """
    is_again = allowed.since_s > 0
    pause_s = min(_LONGEST_PAUSE_S, 2 * allowed.pause_s) if is_again else allowed.pause_s
    return MirrorAllowance(MirrorLevel(max(MirrorLevel.NONE, allowed.level - 1)), why, now_s, pause_s)


def update_allowance(allowed: MirrorAllowance, short: str, now_s: float) -> MirrorAllowance:
    """Update the allowance as time passes.

    Args:
        short: current memory shortage as reported by nodes; empty if there is none.
    """
    if short:
        is_due = not allowed.is_reduced or now_s - allowed.since_s >= STILL_SHORT_S
        if allowed.level is MirrorLevel.NONE:
            return replace(allowed, why=short, since_s=now_s)  # the pause starts when the shortage has ended
        return lower_allowance(allowed, short, now_s) if is_due else allowed
    if allowed.is_reduced and now_s - allowed.since_s >= allowed.pause_s:
        level = MirrorLevel(allowed.level + 1)
        return replace(allowed, level=level, why="" if level is MirrorLevel.TWO else allowed.why, since_s=now_s)
    return allowed
