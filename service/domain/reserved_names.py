"""Names that no identity may have, because events use them for the parts of the system itself."""

_RESERVED = frozenset({"controller", "supervisor", "server", "agent", "system", "owner"})


def is_reserved(name: str) -> bool:
    """Return True if events use the name for a part of the system."""
    return name.lower() in _RESERVED
