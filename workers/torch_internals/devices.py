"""Devices, which torch counts even for computations on the CPU."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_QUESTION = "avoid_device_init"
"""Property of FakeTensorMode. Where CUDA has no device, fake tensors replace its device guard, which counts, too."""


@contextmanager
def no_device_queries() -> Generator[None]:
    """Let torch find no device in the block, without a query: a count of CUDA's devices may initialize its driver.

    A process that has initialized the driver cannot be forked: its children get "initialization error" for each call
    of CUDA. torch counts devices even for a computation on the CPU: for a device mesh, and for the fake tensors in
    which the sharding rules of DTensor compute shapes.
    """
    question, is_available = getattr(FakeTensorMode, _QUESTION), torch.cuda.is_available
    setattr(FakeTensorMode, _QUESTION, False)
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = is_available
        setattr(FakeTensorMode, _QUESTION, question)
