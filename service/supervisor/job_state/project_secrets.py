"""The values of the project's secrets that a job uses, in the memory of its supervisor.

The controller sends them after the start of the supervisor, and again when one was changed. The start
configuration does not contain them: Ray keeps that, to start the supervisor again.
"""

import asyncio
from collections.abc import Collection

from regroup.service.ports.sync import SecretValues


class ProjectSecrets:
    """Receives values from the controller, and lets the start of agents wait for the first ones."""

    def __init__(self, names: Collection[str] = ()) -> None:
        """Initialize the secrets without values.

        Args:
            names: secrets that the job uses.
        """
        self.names = frozenset(names)
        self._received: SecretValues | None = None
        self._arrived = asyncio.Event()

    @property
    def version(self) -> str:
        """Version of the present values; empty without any."""
        return "" if self._received is None else self._received.version

    @property
    def is_missing(self) -> bool:
        """True if the job uses secrets whose values have not arrived."""
        return bool(self.names) and self._received is None

    def receive(self, values: SecretValues | None) -> None:
        """Keep the values of a sync, if it has some."""
        if values is not None:
            self._received = values
            self._arrived.set()

    async def wait(self) -> SecretValues:
        """Return the present values; wait until the first ones have arrived."""
        while self._received is None:
            await self._arrived.wait()
        return self._received
