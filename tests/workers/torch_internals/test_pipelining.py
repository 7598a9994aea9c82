"""Stages whose neighbour is on the same rank, and last stages."""

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage

from regroup.workers.torch_internals.pipelining import Stage
from tests.support.machines.one_rank import one_rank

BETWEEN = torch.empty(2, 4, device="meta", requires_grad=True)


def made(index: int) -> Stage:
    stage = Stage(nn.Linear(4, 4), index, 2, torch.device("cpu"), input_args=BETWEEN, output_args=BETWEEN)
    stage.stage_index_to_group_rank = {0: 0, 1: 0}
    return stage


def test_neighbours_on_one_rank_open_no_connection() -> None:
    with one_rank():
        assert [made(index)._get_init_p2p_neighbors_ops() for index in (0, 1)] == [[], []]


@pytest.mark.skipif(
    not hasattr(PipelineStage, "_validate_fwd_outputs"), reason="torch 2.13 compares inner outputs only"
)
def test_only_outputs_for_another_stage_have_the_declared_shape() -> None:
    with one_rank():
        made(1)._validate_fwd_outputs((torch.zeros(2, 9),))
        with pytest.raises(RuntimeError, match="shape mismatch"):
            made(0)._validate_fwd_outputs((torch.zeros(2, 9),))
