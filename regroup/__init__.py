"""regroup: elastic multi-node training on Ray.

The folders `api`, `service` and `workers` stand at the top of the checkout and are linked in here, so that no
package of those names ever lands on anybody's import path.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regroup.workers.rank.context import Context

__all__ = ["Context", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Not imported before it is asked for: it needs torch, and most who import regroup do not.
    if name == "Context":
        return importlib.import_module("regroup.workers.rank.context").Context
    raise AttributeError(f"module 'regroup' has no attribute {name!r}")
