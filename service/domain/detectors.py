"""What finds out by itself that something is wrong. Each can be switched off, to see that it is needed."""

from enum import StrEnum


class Detector(StrEnum):
    """One way in which a failure is noticed."""

    EXIT = "exit"
    """A rank's process has ended."""
    EXCEPTION = "exception"
    """Training code has raised, and says so before its process ends."""
    HEARTBEAT = "heartbeat"
    """A node's agent is not heard of any more."""
    HANG = "hang"
    """Ranks stand still."""
    STRAGGLER = "straggler"
    """A rank works longer for a step than the others."""
    NON_FINITE = "non_finite"
    """A loss or a gradient norm is no number."""
    LOSS_SPIKE = "loss_spike"
    """A loss stands out from those before it."""
    REPLICA_MISMATCH = "replica_mismatch"
    """Ranks that should hold the same do not."""
