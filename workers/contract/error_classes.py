"""How an exception that ends a rank is treated: pure classification by type and message."""

import errno
from collections.abc import Mapping
from typing import Any

from regroup.workers.contract.rank_error import ErrorClass

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
_HARDWARE_TEXTS = (
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "hardware stack error",
    "gpu is lost",
    "fallen off the bus",
)
"""CUDA messages of a defective device (cudaErrorECCUncorrectable and similar): like the death of the rank."""
_DEVICE_TEXTS = (
    "cuda out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "device-side assert triggered",
    "illegal memory access was encountered",
    "illegal instruction was encountered",
    "misaligned address",
    "unspecified launch failure",
    "the launch timed out and was terminated",
)
"""CUDA messages of short memory, and of errors after which "the process must be terminated and relaunched" (CUDA
Runtime API, error types). A new process may succeed, unless the code is at fault."""
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
    """The spec names something that is missing or different on this node: data, checkpoint, device."""


class LoopFailed(BaseException):
    """Carries an error past a program's code that would catch it: the job decides what follows."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class DataError(InputError):
    """Data that the spec names is missing, unreadable, empty or too short. The message names it."""


class CheckpointDamagedError(Exception):
    """The checkpoint to restore is not complete, or damaged. The supervisor does not use it again."""


def is_from_collective(error: BaseException) -> bool:
    """Return whether torch.distributed raised an error."""
    text = str(error).lower()
    return type(error).__name__.startswith("Dist") or "gloo" in text or "nccl" in text or "tcpstore" in text


class NonFiniteError(FloatingPointError):
    """A loss or a gradient norm is NaN or infinite. Raised by all ranks."""


class _DetailedError(Exception):
    def __init__(self, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.details = dict(details)


class LossSpikeError(_DetailedError):
    """A step's loss or gradient norm stands out from those before it: `step`, `of` (which), `value`, `limit`. Raised by
    all ranks."""


class ReplicasDifferError(_DetailedError):
    """Ranks hold different values of what all of them hold alike: silent corruption. Raised by all ranks."""


def details_of(error: BaseException) -> dict[str, Any]:
    """Return the details of an error, as plain data."""
    return error.details if isinstance(error, _DetailedError) else {}


def classify(error: Exception) -> ErrorClass:
    """Return the class of an exception that left the training function."""
    if isinstance(error, InputError):
        return ErrorClass.INPUT
    if isinstance(error, NonFiniteError):
        return ErrorClass.NON_FINITE
    if isinstance(error, LossSpikeError):
        return ErrorClass.LOSS_SPIKE
    if isinstance(error, ReplicasDifferError):
        return ErrorClass.CORRUPTION
    if isinstance(error, CheckpointDamagedError):
        return ErrorClass.IO
    text = str(error).lower()
    if is_from_collective(error) and any(part in text for part in _COLLATERAL_TEXTS):
        return ErrorClass.COLLATERAL
    if any(part in text for part in _HARDWARE_TEXTS):
        return ErrorClass.COLLATERAL  # caused by a device: like the death of a rank
    if not is_from_collective(error) and any(part in text for part in _DEVICE_TEXTS):
        return ErrorClass.DEVICE
    if type(error).__name__ in ("DistNetworkError", "DistStoreError"):
        return ErrorClass.COLLATERAL
    if isinstance(error, ConnectionError | TimeoutError):
        return ErrorClass.IO
    if isinstance(error, OSError) and error.errno in _IO_ERRNOS:
        return ErrorClass.IO
    return ErrorClass.USER
