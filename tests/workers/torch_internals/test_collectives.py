"""Collectives on one tensor, whatever torch calls them."""

import torch

from regroup.workers.torch_internals.collectives import all_gather_single, reduce_scatter_single
from tests.support.machines.one_rank import one_rank


def test_a_part_of_each_rank_is_gathered_and_a_sum_scattered() -> None:
    part, gathered, scattered = torch.arange(3.0), torch.zeros(3), torch.zeros(3)
    with one_rank():
        all_gather_single(gathered, part, None)
        reduce_scatter_single(scattered, part, None)
    assert gathered.tolist() == scattered.tolist() == [0.0, 1.0, 2.0]
