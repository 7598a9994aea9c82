"""regroup: elastic multi-node training on Ray.

The folders `api`, `service` and `workers` stand at the top of the checkout and are linked in here, so that no
package of those names ever lands on anybody's import path.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regroup.api.functions import submit
    from regroup.api.job_handle import Job
    from regroup.workers.parallel.optimizers import ShardAdamW
    from regroup.workers.parallel.update import clip_grad_norm_
    from regroup.workers.rank.context import Context

__all__ = ["Context", "Job", "ShardAdamW", "__version__", "clip_grad_norm_", "submit"]
__version__ = "0.1.0"

_HOMES = {
    "Context": "regroup.workers.rank.context",
    "Job": "regroup.api.job_handle",
    "ShardAdamW": "regroup.workers.parallel.optimizers",
    "clip_grad_norm_": "regroup.workers.parallel.update",
    "submit": "regroup.api.functions",
}


def __getattr__(name: str) -> Any:
    # Not imported before it is asked for: a rank has no HTTP client, and who submits may have no torch.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regroup' has no attribute {name!r}")
