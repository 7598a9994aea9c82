"""The process of a rank, as opposed to the processes that training code forks from it.

A forked process inherits the rank's connections, hooks and call stack. It must not report for the rank: only the
rank's own process decides about the rank's fate. The number of the process decides, so every kind of fork counts.
"""

import os

_rank_pid: int | None = None


class NotTheRankError(RuntimeError):
    """A process that the rank forked used the rank's connection to its agent."""

    def __init__(self) -> None:
        super().__init__(
            f"process {os.getpid()} is not the rank: process {_rank_pid} forked it. Only the rank itself can use "
            "its steps, snapshots and state"
        )


def claim() -> None:
    """Make this process the rank's own."""
    global _rank_pid
    _rank_pid = os.getpid()


def is_forked() -> bool:
    """Return True in a process that the rank forked."""
    return _rank_pid is not None and os.getpid() != _rank_pid
