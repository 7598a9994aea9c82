"""regroup: elastic multi-node training on Ray.

The folders `api`, `service` and `workers` are at the top of the checkout. Links make them subpackages of this package,
so that packages of the same names in a user's environment do not collide with them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regroup.api.client.async_client import AsyncClient
    from regroup.api.client.client import Client
    from regroup.api.client.function_jobs import submit
    from regroup.api.client.job import Job
    from regroup.workers.parallel.grad_norm import clip_grad_norm_
    from regroup.workers.parallel.sharded_optimizers import ShardAdamW
    from regroup.workers.rank.context import Context

__all__ = ["AsyncClient", "Client", "Context", "Job", "ShardAdamW", "__version__", "clip_grad_norm_", "submit"]
__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "regroup.api.client.async_client",
    "Client": "regroup.api.client.client",
    "Context": "regroup.workers.rank.context",
    "Job": "regroup.api.client.job",
    "ShardAdamW": "regroup.workers.parallel.sharded_optimizers",
    "clip_grad_norm_": "regroup.workers.parallel.grad_norm",
    "submit": "regroup.api.client.function_jobs",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: a rank has no HTTP client, and a machine that submits jobs may have no torch.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regroup' has no attribute {name!r}")
