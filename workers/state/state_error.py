"""The error of a state that cannot be saved or restored."""


class StateError(Exception):
    """A state cannot be saved, or a saved state does not match its target."""
