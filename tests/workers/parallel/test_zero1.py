"""Rows of a rank: like torch.chunk, and of the same global shape."""

from collections.abc import Iterator

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from regroup.workers.parallel.mesh import box_of
from regroup.workers.parallel.zero1 import RowPartition
from regroup.workers.torch_internals.groups import fake_groups

RANK, COUNT = 1, 3


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    with fake_groups(COUNT, RANK):
        yield init_device_mesh("cpu", (COUNT,), mesh_dim_names=("dp_replicate",))


@pytest.mark.parametrize("shape", [(7, 4), (6,), (4, 2, 3), (2, 5), (1, 8)])
def test_a_rank_has_the_rows_of_a_chunk(mesh: DeviceMesh, shape: tuple[int, ...]) -> None:
    tensor, rows = torch.rand(shape), RowPartition(mesh)
    chunks = [*tensor.chunk(COUNT), *[tensor[:0]] * COUNT]
    assert torch.equal(rows.of(tensor), chunks[RANK])
    partitioned = rows.empty_like(tensor, torch.float64)
    found = box_of(partitioned)
    assert (partitioned.dtype, tuple(partitioned.shape)) == (torch.float64, shape)
    assert (found.global_shape, found.shape) == (shape, tuple(chunks[RANK].shape))
    assert found.offset[0] == min(len(chunks[0]), shape[0])
    assert set(found.offset[1:]) <= {0}
    assert (found.copy, found.copies) == (0, 1)
