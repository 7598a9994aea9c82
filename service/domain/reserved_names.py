"""Names that no identity may have: events use them for the parts of the system itself, or the API for the sender."""

ME = "me"
"""Stands for the sender of a request."""
_RESERVED = frozenset({"controller", "supervisor", "server", "agent", "system", "owner", ME})


def is_reserved(name: str) -> bool:
    """Return True if the name stands for a part of the system, or for the sender of a request."""
    return name.lower() in _RESERVED
