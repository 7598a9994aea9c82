"""DistributedDataParallel: an option that torch has renamed."""

import inspect
from typing import Any

from torch.nn.parallel import DistributedDataParallel

_RENAMED = "forward_sync_buffers"
"""Name since torch 2.13. Before, `broadcast_buffers` had this effect, and the synchronization at the start as well."""


def without_buffer_broadcast() -> dict[str, Any]:
    """Return the option of DistributedDataParallel that never sends buffers from rank 0 before a forward pass."""
    is_renamed = _RENAMED in inspect.signature(DistributedDataParallel.__init__).parameters
    return {_RENAMED if is_renamed else "broadcast_buffers": False}
