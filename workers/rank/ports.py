"""What a rank's context needs of the world: its agent at the other end of a channel, and a page for its progress."""

from collections.abc import Sequence
from typing import Protocol

from regroup.workers.contract.messages import Message


class ChannelPort(Protocol):
    """The rank's end of the channel to its agent."""

    def send(self, message: Message) -> None:
        """Hand a message to the agent."""
        ...

    def request(self, message: Message) -> tuple[Message, Sequence[int]]:
        """Send and wait for the reply, which may carry descriptors."""
        ...

    def poll(self) -> Message | None:
        """A message that has come already, or None."""
        ...


class ProgressPort(Protocol):
    """Where the agent reads what this rank is doing."""

    def set(self, step: int, phase: str) -> None:
        """Note step and phase."""
        ...
