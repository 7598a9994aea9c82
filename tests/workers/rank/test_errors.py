"""How an exception that ends a rank is treated, by what it says."""

import errno

import pytest

from regroup.workers.failure import ErrorClass
from regroup.workers.rank.errors import classify


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), ErrorClass.COLLATERAL),
        (RuntimeError("CUDA error: uncorrectable NVLink error detected"), ErrorClass.COLLATERAL),
        (RuntimeError("CUDA error: device-side assert triggered"), ErrorClass.USER),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), ErrorClass.USER),
        (OSError(errno.ENOSPC, "No space left on device"), ErrorClass.IO),
        (RuntimeError("[gloo] Connection closed by peer [10.0.0.4]:7"), ErrorClass.COLLATERAL),
        (ValueError("bad shape"), ErrorClass.USER),
    ],
)
def test_an_error_of_the_device_is_like_the_ranks_death_and_one_of_the_code_is_not(
    error: Exception, expected: ErrorClass
) -> None:
    assert classify(error) is expected
