"""Process groups: those of this process, their recorded collectives, and a fake one."""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d

_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Functions of the flight recorder: one for all backends, one for NCCL alone. A build of torch may lack either."""
_BUFFER_SIZE = "TORCH_FR_BUFFER_SIZE"

_retained: list[object] = []


def retain_all() -> None:
    """Retain all groups of this process until it ends.

    torch frees a gloo group with the GIL held, and joins the group's threads. At that moment, one of them may release
    the tensors of its last collective, which needs the GIL. Then the process hangs at exit. This is rare: three times
    in some hundred runs of four ranks on two cores. A rank exits without destructors, so retaining costs nothing.
    """
    _retained.extend(distributed_c10d._world.pg_map)  # pyright: ignore[reportPrivateUsage]


def retain_destroyed_groups() -> None:
    """Replace `destroy_process_group`: from now on, it retains the group's object."""
    destroy = dist.destroy_process_group

    @wraps(destroy)
    def retaining(*args: Any, **kwargs: Any) -> Any:
        retain_all()
        return destroy(*args, **kwargs)

    dist.destroy_process_group = distributed_c10d.destroy_process_group = retaining


def first_ranks() -> dict[str, int]:
    """Return name of a group of this rank → its smallest rank. Groups from one split may share a name."""
    world = distributed_c10d._world  # pyright: ignore[reportPrivateUsage]
    # Groups from a split that excludes this rank are listed too, without a name.
    of_ours = [(world.pg_names.get(group), ranks) for group, ranks in list(world.pg_group_ranks.items())]
    return {name: min(ranks) for name, ranks in of_ours if name is not None and ranks}


def recorded_collectives() -> list[Mapping[str, Any]]:
    """Return the entries of torch's flight recorder, in no order. Empty where torch records nothing."""
    entries: list[Mapping[str, Any]] = []
    for recorder in _RECORDERS:
        if (dump := getattr(_distributed_c10d, recorder, None)) is not None:
            entries += json.loads(dump(True, False)).get("entries", [])
    return entries


def limit_recorder(entries: int) -> None:
    """Limit the flight recorder to a number of entries, unless the user has set one. No group may exist yet."""
    os.environ.setdefault(_BUFFER_SIZE, str(entries))


@contextmanager
def fake_groups(world_size: int, rank: int = 0) -> Generator[None]:
    """Give this process groups whose collectives do nothing, as if other ranks existed."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend, too

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()
