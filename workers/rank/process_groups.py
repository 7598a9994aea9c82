"""Process groups that live as long as their process.

torch frees a gloo group with the GIL held, and joins the group's threads. At that moment, one of them may release the
tensors of its last collective, which needs the GIL. Then the process hangs at exit. This is rare: three times in some
hundred runs of four ranks on two cores. A rank exits without destructors, so retaining its groups costs nothing.
"""

from functools import wraps
from typing import Any

from torch import distributed as dist
from torch.distributed import distributed_c10d

_retained: list[object] = []


def retain_all() -> None:
    """Retain all groups of this process until it ends."""
    _retained.extend(distributed_c10d._world.pg_map)  # pyright: ignore[reportPrivateUsage]


def retain_destroyed_groups() -> None:
    """Replace `destroy_process_group`: from now on, it retains the group's object."""
    destroy = dist.destroy_process_group

    @wraps(destroy)
    def retaining(*args: Any, **kwargs: Any) -> Any:
        retain_all()
        return destroy(*args, **kwargs)

    dist.destroy_process_group = distributed_c10d.destroy_process_group = retaining
