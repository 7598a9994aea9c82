"""Decisions that all ranks make together in every step. They travel in the control all-reduce at no extra message.

Each rank contributes its requests. The sums are equal on all ranks, and so are the decisions.
"""

from dataclasses import astuple, dataclass

from regroup.workers.contract.messages import MirrorDue, Stop
from regroup.workers.rank.ports import ChannelPort

MIRROR_PINS = 2
"""Maximum number of buffers pinned for mirrors: the newest mirrored snapshot, and the one in transfer."""


@dataclass
class AgentRequests:
    """Requests of this rank's agent that are not fulfilled yet."""

    stop: bool = False
    save: bool = False
    """Save the last step as a checkpoint."""
    mirror: bool = False

    def receive(self, channel: ChannelPort) -> None:
        """Add the requests that have arrived."""
        while (message := channel.poll()) is not None:
            if isinstance(message, Stop):
                self.stop, self.save = True, self.save or message.save
            self.mirror = self.mirror or isinstance(message, MirrorDue)


@dataclass(frozen=True)
class StepRequests:
    """Requests of one rank, or their sums over all ranks."""

    non_finite: float
    """1 if one of its values is not finite."""
    stop: float
    save: float
    """1 to save a checkpoint when stopping."""
    checkpoint: float
    checkpoint_pins: float
    """Number of buffers pinned for a checkpoint."""
    mirror: float
    full_mirror_pins: float
    """1 if the rank cannot pin another buffer for a mirror."""
    skew: float
    """Skew of the newest snapshot. The sum is not 0 if replicas differ."""
    step_s: float
    """Duration of the previous step. Then the stall by its snapshot, and the stall by the snapshot before it, in
    seconds."""
    stall_s: float
    previous_stall_s: float

    def values(self) -> tuple[float, ...]:
        """Return the values in the order of the fields."""
        return astuple(self)


@dataclass(frozen=True)
class StepConsensus:
    """Decisions about the current step."""

    stop: bool = False
    save: bool = False
    """Save this step as a checkpoint, even if training must wait for the previous one: training ends here."""
    checkpoint: bool = False
    mirror: bool = False

    @classmethod
    def of(cls, total: StepRequests) -> "StepConsensus":
        """Return the decisions that follow from the sums over all ranks."""
        return cls(
            total.stop > 0,
            total.save > 0,
            total.checkpoint > 0 and total.checkpoint_pins == 0,
            total.mirror > 0 and total.full_mirror_pins == 0,
        )
