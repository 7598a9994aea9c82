"""Messages of an agent for its supervisor, retained until they are durable in the database."""

import uuid
from typing import Any

from regroup.workers.contract.messages import Message, to_json

_BATCH = 2000
_UNHURRIED = frozenset({"Joined", "Restored", "Pinned", "StateDigest", "Done"})
"""Messages that all ranks of a node send at almost the same time, and for which no rank waits."""


class Outbox:
    """Numbers messages, sends them again to a restarted supervisor, and deletes them once they are durable."""

    def __init__(self) -> None:
        self.boot_id = uuid.uuid4().hex
        """Identifies this run of the agent. Numbers start again with each run."""
        self._newest = 0
        self._messages: dict[int, dict[str, Any]] = {}
        self._received = 0
        self._supervisor = ""

    def add(self, message: Message) -> None:
        """Add a message for the supervisor."""
        self._newest += 1
        self._messages[self._newest] = to_json(message)

    @property
    def supervisor_run(self) -> str:
        """Identifies the supervisor run that has received all messages before the next batch."""
        return self._supervisor

    @property
    def newest(self) -> int:
        """Number of the newest message."""
        return self._newest

    def is_received(self, number: int) -> bool:
        """Return True if the supervisor has received this message, and so all before it."""
        return self._received >= number

    def next_batch(self) -> tuple[tuple[int, dict[str, Any]], ...]:
        """Return the messages that this supervisor run has not received, in order."""
        unsent = [number for number in range(self._received + 1, self._newest + 1) if number in self._messages][:_BATCH]
        return tuple((number, self._messages[number]) for number in unsent)

    @property
    def has_urgent(self) -> bool:
        """True if the supervisor has not received a message that it must act on at once."""
        return any(message["type"] not in _UNHURRIED for _, message in self.next_batch())

    def acknowledge(self, supervisor_boot_id: str, through: int, durable: int) -> None:
        """Record which messages have arrived.

        Args:
            supervisor_boot_id: identifies the supervisor run that replied.
            through: highest message number that it has received.
            durable: highest message number in the database.
        """
        if supervisor_boot_id != self._supervisor:
            if self._supervisor:
                through = 0  # a restarted supervisor: send every message again that is not durable
            self._supervisor = supervisor_boot_id
            self._received = 0
        self._received = max(self._received, through)
        for number in [number for number in self._messages if number <= durable]:
            del self._messages[number]

    def __len__(self) -> int:
        return len(self._messages)
