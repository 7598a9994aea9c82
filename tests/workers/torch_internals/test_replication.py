"""The option of DistributedDataParallel that torch has renamed."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regroup.workers.torch_internals import replication
from regroup.workers.torch_internals.groups import fake_groups


def test_ddp_accepts_the_option_and_sends_no_buffers() -> None:
    with fake_groups(2):
        model = DistributedDataParallel(nn.BatchNorm1d(4), init_sync=False, **replication.without_buffer_broadcast())
        assert model.broadcast_buffers is False
        model(torch.ones(2, 4))


def test_a_torch_before_the_renaming_gets_the_former_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Former:
        def __init__(self, module: nn.Module, broadcast_buffers: bool = True) -> None: ...

    monkeypatch.setattr(replication, "DistributedDataParallel", Former)
    assert replication.without_buffer_broadcast() == {"broadcast_buffers": False}
