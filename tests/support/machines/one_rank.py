"""A process group of this process alone, over gloo."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from torch import distributed as dist


@contextmanager
def one_rank() -> Generator[None]:
    """Be the only rank for the duration of the block."""
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        yield
    finally:
        dist.destroy_process_group()
        if before is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = before
