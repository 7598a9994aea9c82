"""How much memory mirrors may take while nodes are short of it: less first, then none, and more again later. Pure."""

from dataclasses import dataclass, replace
from enum import IntEnum

_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 1800.0
STILL_SHORT_S = 15.0
"""After so long at one level memory that is still short takes the next one down."""


class MirrorLevel(IntEnum):
    """Sets that a node may hold for another while one is sent."""

    NONE = 0
    """There are no mirrors; what was held is given back."""
    ONE = 1
    """The set that is held is given up before the next one is sent: meanwhile no mirror is whole."""
    TWO = 2
    """It is kept until the next one is whole."""


@dataclass(frozen=True)
class MirrorAllowance:
    """What mirrors may take now."""

    level: MirrorLevel = MirrorLevel.TWO
    why: str = ""
    """That it is not more; for people."""
    since_s: float = 0.0
    """When it was lowered last."""
    pause_s: float = _PAUSE_S
    """So long after that more is tried."""

    @property
    def is_reduced(self) -> bool:
        """It is not what a job has with room enough."""
        return self.level is not MirrorLevel.TWO


def lower_allowance(allowed: MirrorAllowance, why: str, now_s: float) -> MirrorAllowance:
    """After a node had no room for a set, or said that its memory is short. The pause before more is tried doubles each
    time it is lowered again, to half an hour: a node at its limit is not pushed over it every minute."""
    is_again = allowed.since_s > 0
    pause_s = min(_LONGEST_PAUSE_S, 2 * allowed.pause_s) if is_again else allowed.pause_s
    return MirrorAllowance(MirrorLevel(max(MirrorLevel.NONE, allowed.level - 1)), why, now_s, pause_s)


def update_allowance(allowed: MirrorAllowance, short: str, now_s: float) -> MirrorAllowance:
    """As time passes. `short`: what nodes say of their memory now; empty if it is not short."""
    if short:
        is_due = not allowed.is_reduced or now_s - allowed.since_s >= STILL_SHORT_S
        if allowed.level is MirrorLevel.NONE:
            return replace(allowed, why=short, since_s=now_s)  # its pause begins when memory is there again
        return lower_allowance(allowed, short, now_s) if is_due else allowed
    if allowed.is_reduced and now_s - allowed.since_s >= allowed.pause_s:
        level = MirrorLevel(allowed.level + 1)
        return replace(allowed, level=level, why="" if level is MirrorLevel.TWO else allowed.why, since_s=now_s)
    return allowed
