"""A training function whose ranks are in different groups, as those of split layouts are."""

from typing import Any

import torch
from torch import distributed as dist

from regroup.workers.rank import flight_recorder
from regroup.workers.torch_internals import groups


def train(context: Any) -> None:
    """Split off one group per rank, and report the recent collectives."""
    for rank in range(context.world_size):
        dist.new_group([rank])
    dist.all_reduce(torch.ones(1))
    context.result = {
        "first_ranks": sorted(set(groups.first_ranks().values())),
        "newest": flight_recorder.recent_collectives(),
    }
