"""Observer of a client's contact with its server, for programs that show it to people."""

from typing import Protocol


class Contact(Protocol):
    """Learns of each attempt to reach the server. Its methods may be called from several threads."""

    def expect(self, limit_s: float) -> None:
        """Note that the calling thread waits for the server, which usually answers within `limit_s`."""
        ...

    def answered(self) -> None:
        """Note that the server answered the calling thread."""
        ...

    def done(self) -> None:
        """Note that the calling thread waits no longer."""
        ...

    def lost(self, reason: str, left_s: float) -> None:
        """Note that an attempt failed. The client repeats it for at most `left_s` more seconds."""
        ...


class NoContact:
    """Observes nothing."""

    def expect(self, limit_s: float) -> None:
        """Do nothing."""

    def answered(self) -> None:
        """Do nothing."""

    def done(self) -> None:
        """Do nothing."""

    def lost(self, reason: str, left_s: float) -> None:
        """Do nothing."""


def describe_failure(error: object) -> str:
    """Return the reason of a failed connection without the number of the system's error."""
    text = str(error).strip() or type(error).__name__
    return text.partition("] ")[2] if text.startswith("[Errno ") else text
