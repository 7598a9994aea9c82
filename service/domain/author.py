"""The author of a change, for its event and its audit record."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Author:
    """An identity that requests a change, or the server itself."""

    name: str
    """Name of the identity: the actor of events."""
    token_id: str | None = None
    """Id of the token or of the session; None for the owner's token, and for the server itself."""
    address: str | None = None
    """Address of the client; None for the server itself, whose decisions are events without an audit record."""


CONTROLLER = Author("controller")
"""The server's own decisions."""
