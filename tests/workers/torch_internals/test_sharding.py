"""Regions and wrappers through torch's private names."""

from typing import cast

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from regroup.workers.torch_internals import sharding
from regroup.workers.torch_internals.groups import fake_groups
from tests.support.machines.one_rank import one_rank


@pytest.mark.parametrize(("rank", "rows", "offset"), [(0, 3, 0), (1, 3, 3), (2, 1, 6)])
def test_the_region_of_an_uneven_shard(rank: int, rows: int, offset: int) -> None:
    with fake_groups(3, rank):
        mesh = init_device_mesh("cpu", (3,))
        part = DTensor.from_local(
            torch.ones(rows, 2), mesh, [Shard(0)], run_check=False, shape=torch.Size((7, 2)), stride=(2, 1)
        )
        assert sharding.local_region(part) == ((rows, 2), (offset, 0))
        assert torch.equal(sharding.local_tensor(part), torch.ones(rows, 2))
        whole = DTensor.from_local(torch.ones(7, 2), mesh, [Replicate()], run_check=False)
        assert sharding.local_region(whole) == ((7, 2), (0, 0))


def test_the_local_tensor_stays_attached_to_autograd() -> None:
    with one_rank():
        leaf = torch.ones(2, requires_grad=True)
        tensor = distribute_tensor(leaf.detach(), init_device_mesh("cpu", (1,)), [Replicate()])
        assert sharding.local_tensor(tensor).data_ptr() == tensor.to_local().data_ptr()


def test_the_group_of_a_mesh_has_all_its_ranks() -> None:
    with fake_groups(4):
        assert sharding.whole_group(init_device_mesh("cpu", (4,))).size() == 4
        assert sharding.whole_group(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))).size() == 4


def test_a_block_that_recomputes_has_the_same_gradients() -> None:
    torch.manual_seed(1)
    block, inputs = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.rand(2, 3)
    block(inputs).sum().backward()
    expected = [parameter.grad for parameter in block.parameters()]
    block.zero_grad()
    runs: list[int] = []
    block.register_forward_pre_hook(lambda *_: runs.append(1))
    sharding.recompute_in_backward(block, None)(inputs).sum().backward()
    assert len(runs) == 2
    found = [parameter.grad for parameter in block.parameters()]
    assert all(torch.equal(now, then) for now, then in zip(found, expected, strict=True) if now is not None)


def test_the_names_of_wrappers_are_those_in_parameter_names() -> None:
    with one_rank():
        wrapped: list[nn.Module] = [
            DistributedDataParallel(nn.Linear(1, 1)), sharding.recompute_in_backward(nn.Linear(1, 1), None),
            cast(nn.Module, torch.compile(nn.Linear(1, 1))),
        ]  # fmt: skip
    names = [name.split(".")[0] for module in wrapped for name, _ in nn.Sequential(module)[0].named_parameters()]
    assert {*names} <= {*sharding.WRAPPERS, "weight", "bias"}
