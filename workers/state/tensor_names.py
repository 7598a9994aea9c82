"""Names of the tensors of a saved state, which show the kind of their owner. Imports neither torch nor ray."""

from typing import NamedTuple

BUFFER = "buffer."
OPTIM, OTHER_OPTIM, STATE = "optim.", "optim:", "state:"
_OWN, _OWN_PART = "own:", "own-part:"
_PARAMETER, _OPTIMIZER = "parameter", "optimizer"


class OwnCopy(NamedTuple):
    """Name of a copy that belongs to one rank because copies differ, or may differ, between ranks."""

    rank: int
    name: str
    """Name of the tensor of which it is a copy."""
    is_part: bool = False
    """True if it is the local part of a sharded tensor."""

    def __str__(self) -> str:
        return f"{_OWN_PART if self.is_part else _OWN}{self.rank}:{self.name}"


def parse_own(name: str) -> OwnCopy | None:
    """Return the owner of a copy that belongs to one rank; None for any other name."""
    if not name.startswith((_OWN, _OWN_PART)):
        return None
    kind, rank, of = name.split(":", 2)
    return OwnCopy(int(rank), of, f"{kind}:" == _OWN_PART)


def is_parameter(name: str) -> bool:
    """Return True if a tensor of a saved state is a parameter, not a buffer or the state of another object."""
    return owner_kind(name) == _PARAMETER


def may_differ(name: str) -> bool:
    """Return True if unsharded copies of a tensor may differ between ranks: buffers, metrics."""
    return name.startswith((BUFFER, STATE))


def owner_kind(name: str) -> str:
    """Return `parameter`, `optimizer`, `buffer`, `own`, or `state:OBJECT`: tensors of one kind belong together."""
    if name.startswith((_OWN, _OWN_PART)):
        return "own"
    if name.startswith(STATE):
        return name.partition(".")[0]
    if name.startswith((OPTIM, OTHER_OPTIM)):
        return _OPTIMIZER
    return "buffer" if name.startswith(BUFFER) else _PARAMETER
