"""What all ranks decide alike at every step. It rides on the one control all-reduce, so it costs no message of its own.

Each rank says what it wishes; the sums are the same everywhere, and so is what follows from them.
"""

from dataclasses import astuple, dataclass

from regroup.workers.contract.messages import MirrorDue, Stop
from regroup.workers.rank.ports import ChannelPort

MIRROR_PINS = 2
"""The newest set that a mirror holds whole, and the one that is on its way there."""


@dataclass
class AgentRequests:
    """What this rank's agent has asked for and not got yet."""

    stop: bool = False
    save: bool = False
    """That step is to be held for a checkpoint."""
    mirror: bool = False

    def receive(self, channel: ChannelPort) -> None:
        """Take in what has come meanwhile."""
        while (message := channel.poll()) is not None:
            if isinstance(message, Stop):
                self.stop, self.save = True, self.save or message.save
            self.mirror = self.mirror or isinstance(message, MirrorDue)


@dataclass(frozen=True)
class StepRequests:
    """Of one rank, or summed over all."""

    non_finite: float
    """It has a value that is no number."""
    stop: float
    save: float
    """With the stop, a checkpoint."""
    checkpoint: float
    checkpoint_pins: float
    """It holds a buffer for a checkpoint."""
    mirror: float
    full_mirror_pins: float
    """It holds as many buffers for mirrors as it may."""
    skew: float
    """Of its newest set; in sum not 0 if ranks differ in what they should hold alike."""
    step_s: float
    """What the step before took; then what its snapshot has held training up since, and what the one before it had."""
    stall_s: float
    previous_stall_s: float

    def values(self) -> tuple[float, ...]:
        """In the order of the fields."""
        return astuple(self)


@dataclass(frozen=True)
class StepConsensus:
    """What is done with the step that is being taken."""

    stop: bool = False
    save: bool = False
    """The step is held for a checkpoint even if that has to wait for the one before: training ends with it."""
    checkpoint: bool = False
    mirror: bool = False

    @classmethod
    def of(cls, total: StepRequests) -> "StepConsensus":
        """What follows from the wishes of all ranks."""
        return cls(
            total.stop > 0,
            total.save > 0,
            total.checkpoint > 0 and total.checkpoint_pins == 0,
            total.mirror > 0 and total.full_mirror_pins == 0,
        )
