"""Names of the tensors of a saved state: what kind of thing each belongs to. No torch, no ray."""

BUFFER = "buffer."
OPTIM, OTHER_OPTIM, STATE = "optim.", "optim:", "state:"


def is_parameter(name: str) -> bool:
    """Whether a tensor of a saved state is a parameter, and not a buffer, optimizer state or anything else's."""
    return not name.startswith((OPTIM, OTHER_OPTIM, BUFFER, STATE))


def may_differ(name: str) -> bool:
    """Whether ranks that hold a tensor of a state whole may hold different values: buffers, metrics."""
    return name.startswith((BUFFER, STATE))
