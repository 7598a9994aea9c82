"""How an exception that ends a rank is treated: pure classification by type and message."""

import errno
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract import ErrorClass

_COLLATERAL_TEXTS = (
    "connection reset by peer",
    "connection closed by peer",
    "connection closed by remote peer",
    "connectfullmesh failed",
    "broken pipe",
    "socket closed",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "software caused connection abort",
    "failed to recv",
    "application timeout caused pair closure",
)
_IO_ERRNOS = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
    }
)


class InputError(Exception):
    """The spec names something that is not so on this node: data, checkpoint, device."""


class LoopFailed(BaseException):
    """Carries an error past a program's code that would catch it: the job decides what follows."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class DataError(InputError):
    """Data that the spec names is missing, unreadable, empty or too short. The message names it."""


def is_from_collective(error: BaseException) -> bool:
    """Whether torch.distributed raised it."""
    text = str(error).lower()
    return type(error).__name__.startswith("Dist") or "gloo" in text or "nccl" in text or "tcpstore" in text


class NonFiniteError(FloatingPointError):
    """A loss or a gradient's norm is no number. Raised by all ranks."""


class ReplicasDifferError(Exception):
    """Ranks hold different values of what all of them hold alike: silent corruption. Raised by all ranks."""

    def __init__(self, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.details = dict(details)


def classify(error: Exception) -> ErrorClass:
    """The class of an exception that left the training function."""
    if isinstance(error, InputError):
        return ErrorClass.INPUT
    if isinstance(error, NonFiniteError):
        return ErrorClass.NON_FINITE
    if isinstance(error, ReplicasDifferError):
        return ErrorClass.CORRUPTION
    text = str(error).lower()
    if is_from_collective(error) and any(part in text for part in _COLLATERAL_TEXTS):
        return ErrorClass.COLLATERAL
    if type(error).__name__ in ("DistNetworkError", "DistStoreError"):
        return ErrorClass.COLLATERAL
    if isinstance(error, ConnectionError | TimeoutError):
        return ErrorClass.IO
    if isinstance(error, OSError) and error.errno in _IO_ERRNOS:
        return ErrorClass.IO
    return ErrorClass.USER
