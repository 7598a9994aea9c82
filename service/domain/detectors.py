"""Failure detectors. Each can be disabled, to show that it is needed."""

from enum import StrEnum


class Detector(StrEnum):
    """A way to detect a failure."""

    EXIT = "exit"
    """A rank's process ended."""
    EXCEPTION = "exception"
    """Training code raised an exception, reported before its process ends."""
    HEARTBEAT = "heartbeat"
    """A node's agent stopped sending heartbeats."""
    HANG = "hang"
    """Ranks make no progress."""
    STRAGGLER = "straggler"
    """A rank needs more time per step than the others."""
    NON_FINITE = "non_finite"
    """A loss or gradient norm is non-finite."""
    LOSS_SPIKE = "loss_spike"
    """A loss or gradient norm spikes."""
    REPLICA_MISMATCH = "replica_mismatch"
    """Replicated state differs between ranks."""
