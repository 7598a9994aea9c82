"""Signs of life that an agent sends its supervisor beside its reports.

A report waits for those before it, and on a network that loses packets all of them wait for the one that was lost (TCP
sends it again after 0.2, 0.4, 0.8 … s). A datagram waits for nobody.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

EVERY_S = 0.5
_MAGIC = b"regroup\0"


@dataclass(frozen=True)
class Listener:
    """Where a supervisor listens, and the word by which it knows its own agents."""

    host: str
    port: int
    word: str

    def to_json(self) -> dict[str, Any]:
        """For a reply to a report."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Listener":
        """The inverse."""
        return cls(str(data["host"]), int(data["port"]), str(data["word"]))

    def datagram(self, node_id: str) -> bytes:
        """What the agent on that node sends."""
        return _MAGIC + f"{self.word} {node_id}".encode()

    def sender(self, datagram: bytes) -> str | None:
        """Whose datagram it is; None if of nobody who was told the word."""
        word, _, node_id = datagram.removeprefix(_MAGIC).decode(errors="replace").partition(" ")
        return node_id if datagram.startswith(_MAGIC) and word == self.word else None
