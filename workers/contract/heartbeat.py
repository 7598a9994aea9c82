"""Heartbeats that an agent sends to its supervisor in addition to its reports.

Reports use one TCP connection. When the network loses a packet, every later report waits for its retransmission (after
0.2, 0.4, 0.8 … s). A datagram does not wait for another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVERY_S = 0.5
_MAGIC = b"regroup\0"


@dataclass(frozen=True)
class Listener:
    """Address at which a supervisor listens, and the word that identifies its agents."""

    host: str
    port: int
    word: str

    def to_json(self) -> dict[str, Any]:
        """Return the plain data for a reply to a report."""
        return {"host": self.host, "port": self.port, "word": self.word}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Listener":
        """Parse the plain data."""
        return cls(str(data["host"]), int(data["port"]), str(data["word"]))

    def datagram(self, node_id: str) -> bytes:
        """Return the datagram of the agent on a node."""
        return _MAGIC + f"{self.word} {node_id}".encode()

    def sender(self, datagram: bytes) -> str | None:
        """Return the node id of a datagram's sender; None if the word is wrong."""
        word, _, node_id = datagram.removeprefix(_MAGIC).decode(errors="replace").partition(" ")
        return node_id if datagram.startswith(_MAGIC) and word == self.word else None
