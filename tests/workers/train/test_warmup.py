"""The warm-up step leaves nothing behind that ranks could notice."""

import pytest
import torch
from torch import distributed as dist

from regroup.workers.contract.codec import plain
from regroup.workers.contract.rank_config import ParallelConfig, RankConfig, WarmupConfig
from regroup.workers.train.warmup import warm_up

MODEL = {"family": "transformer", "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False}


@pytest.mark.parametrize(
    ("kind", "is_tensor_parallel"), [("fsdp", False), ("fsdp", True), ("ddp", False), ("zero1", False)]
)
def test_every_kind_warms_up_and_leaves_no_group_and_as_many_threads(kind: str, is_tensor_parallel: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = RankConfig(model=MODEL, parallel=ParallelConfig(kind))
        warm_up(plain(WarmupConfig(config, is_tensor_parallel)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert not dist.is_initialized()


def test_a_model_that_cannot_be_built_leaves_no_group_either() -> None:
    with pytest.raises(Exception, match="unknown model family"):
        warm_up(plain(WarmupConfig(RankConfig(model=MODEL | {"family": "unknown"}), False)))
    assert not dist.is_initialized()
