"""Messages an agent has for its supervisor, kept until the database holds what they say."""

import uuid
from typing import Any

from regroup.workers.contract.messages import Message, to_json

_BATCH = 2000


class Outbox:
    """Numbers messages; resends them to a new supervisor; forgets them once they are durable."""

    def __init__(self) -> None:
        self.boot_id = uuid.uuid4().hex
        """Names this agent's life: numbers start again with it."""
        self._next = 0
        self._kept: dict[int, dict[str, Any]] = {}
        self._sent = 0
        self._supervisor = ""

    def put(self, message: Message) -> None:
        """Keep a message for the supervisor."""
        self._next += 1
        self._kept[self._next] = to_json(message)

    @property
    def supervisor_run(self) -> str:
        """Names the supervisor's life that was last heard of, which has taken what comes before a batch."""
        return self._supervisor

    @property
    def last(self) -> int:
        """Number of the newest message."""
        return self._next

    def is_sent(self, number: int) -> bool:
        """Whether the supervisor has taken this message, and so all before it."""
        return self._sent >= number

    def batch(self) -> tuple[tuple[int, dict[str, Any]], ...]:
        """What this supervisor has not been sent, in order."""
        fresh = [number for number in range(self._sent + 1, self._next + 1) if number in self._kept][:_BATCH]
        return tuple((number, self._kept[number]) for number in fresh)

    def sent(self, supervisor_boot_id: str, through: int, durable: int) -> None:
        """The supervisor of that life has taken messages up to `through`; the database has those up to `durable`."""
        if supervisor_boot_id != self._supervisor:
            if self._supervisor:
                through = 0  # a new life knows nothing: send again what is not durable
            self._supervisor = supervisor_boot_id
            self._sent = 0
        self._sent = max(self._sent, through)
        for number in [number for number in self._kept if number <= durable]:
            del self._kept[number]

    def __len__(self) -> int:
        return len(self._kept)
