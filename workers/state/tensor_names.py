"""Names of the tensors of a saved state, which show the kind of their owner. Imports neither torch nor ray."""

BUFFER = "buffer."
OPTIM, OTHER_OPTIM, STATE = "optim.", "optim:", "state:"


def is_parameter(name: str) -> bool:
    """Return True if a tensor of a saved state is a parameter, not a buffer or the state of another object."""
    return not name.startswith((OPTIM, OTHER_OPTIM, BUFFER, STATE))


def may_differ(name: str) -> bool:
    """Return True if unsharded copies of a tensor may differ between ranks: buffers, metrics."""
    return name.startswith((BUFFER, STATE))
