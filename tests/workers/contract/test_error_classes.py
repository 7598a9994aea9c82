"""How an exception that ends a rank is treated, by what it says."""

import errno

import pytest
import torch

from regroup.workers.contract.error_classes import CheckpointDamagedError, classify
from regroup.workers.contract.rank_error import ErrorClass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), ErrorClass.COLLATERAL),
        (RuntimeError("CUDA error: uncorrectable NVLink error detected"), ErrorClass.COLLATERAL),
        (RuntimeError("CUDA error: device-side assert triggered"), ErrorClass.DEVICE),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), ErrorClass.DEVICE),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), ErrorClass.DEVICE),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ErrorClass.DEVICE),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), ErrorClass.USER),
        (MemoryError("Unable to allocate 2.00 GiB"), ErrorClass.USER),
        (OSError(errno.ENOSPC, "No space left on device"), ErrorClass.IO),
        (RuntimeError("[gloo] Connection closed by peer [10.0.0.4]:7"), ErrorClass.COLLATERAL),
        (ValueError("bad shape"), ErrorClass.USER),
        (CheckpointDamagedError("the file system is read-only"), ErrorClass.IO),
    ],
)
def test_hardware_counts_as_collateral_and_device_errors_have_their_own_class(
    error: Exception, expected: ErrorClass
) -> None:
    assert classify(error) is expected
