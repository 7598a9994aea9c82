"""Process groups live as long as their process.

torch frees a gloo group with the GIL held, and waits for the group's threads. One of them may at that moment let go of
the tensors of its last collective, for which it needs the GIL: the process then hangs at its end, rarely (seen three
times in some hundred runs of four ranks on two cores). A rank ends without destructors, so nothing is lost by keeping
what it has.
"""

from functools import wraps
from typing import Any

from torch import distributed as dist
from torch.distributed import distributed_c10d

_retained: list[object] = []


def retain_all() -> None:
    """Hold all groups of this process until it ends."""
    _retained.extend(distributed_c10d._world.pg_map)  # pyright: ignore[reportPrivateUsage]


def retain_destroyed_groups() -> None:
    """From now on, whoever destroys a group only forgets it."""
    destroy = dist.destroy_process_group

    @wraps(destroy)
    def retaining(*args: Any, **kwargs: Any) -> Any:
        retain_all()
        return destroy(*args, **kwargs)

    dist.destroy_process_group = distributed_c10d.destroy_process_group = retaining
