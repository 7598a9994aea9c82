"""Interfaces of a rank's context to its surroundings: the channel to its agent, and its progress page."""

from collections.abc import Sequence
from typing import Protocol

from regroup.workers.contract.messages import Message


class ChannelPort(Protocol):
    """The rank's end of the channel to its agent."""

    def send(self, message: Message) -> None:
        """Send a message to the agent."""
        ...

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, Sequence[int]]:
        """Send a message with descriptors, and wait for the reply, which may carry descriptors as well."""
        ...

    def poll(self) -> Message | None:
        """Return a message that has already arrived, or None."""
        ...


class ProgressPort(Protocol):
    """Page from which the agent reads this rank's progress."""

    def set(self, step: int, phase: str) -> None:
        """Publish step and phase."""
        ...
