"""Parallel degrees → DeviceMesh, and the region of a global tensor that this rank holds."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from regroup.workers.torch_internals.sharding import local_region, local_tensor, whole_group

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Mesh axes, outermost first: ranks that differ only in tp are neighbors."""


def build_mesh(layout: Mapping[str, int], device_type: str) -> DeviceMesh:
    """Return the mesh of a layout, without axes of degree 1. At least `dp_shard` or `dp_replicate` remains."""
    axes = [axis for axis in AXES if layout.get(axis, 1) > 1] or ["dp_shard"]
    return init_device_mesh(device_type, tuple(layout.get(axis, 1) for axis in axes), mesh_dim_names=tuple(axes))


def layout_hash(layout: Mapping[str, int]) -> str:
    """Return a hash of 16 characters that identifies the layout. All shards of one snapshot carry the same hash."""
    return hashlib.sha256(json.dumps(dict(layout), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Meshes:
    """The meshes over which the engine distributes a model."""

    data: DeviceMesh
    """(dp_replicate), (dp_shard) or (dp_replicate, dp_shard)."""
    tensor: DeviceMesh | None = None
    pipeline: DeviceMesh | None = None
    is_sharded: bool = True
    """True if the last axis of `data` shards parameters, even with degree 1."""

    @cached_property
    def data_group(self) -> dist.ProcessGroup:
        """The process group of all data ranks. Created on first use, which is a collective."""
        return whole_group(self.data)


def meshes_of(layout: Mapping[str, int], device_type: str, *, sharded: bool) -> Meshes:
    """Return the meshes of a layout.

    A model that is split in any way has an axis of shards, even if `sharded` is false. Then gradients of replicas and
    of split tensors are summed in the same way, and computation uses one data type.
    """
    sharded = sharded or layout.get("tp", 1) > 1 or layout.get("pp", 1) > 1
    data_axis = "dp_shard" if sharded else "dp_replicate"
    axes = [axis for axis in AXES if layout.get(axis, 1) > 1 or axis == data_axis]
    mesh = init_device_mesh(device_type, tuple(layout.get(axis, 1) for axis in axes), mesh_dim_names=tuple(axes))
    data = tuple(axis for axis in axes if axis in ("dp_replicate", "dp_shard"))
    tensor, pipeline = (mesh[axis] if axis in axes else None for axis in ("tp", "pp"))
    return Meshes(mesh[data], tensor, pipeline, sharded)


@dataclass(frozen=True)
class Place:
    """A rank's coordinates in the data-parallel dimension."""

    index: int
    degree: int
    speaks: bool = True
    """True on one of the ranks that receive the same samples. This rank counts them."""


def data_place(layout: Mapping[str, int], rank: int) -> Place:
    """Return this rank's data-parallel coordinates. Ranks that differ in dp_replicate or dp_shard receive different
    samples."""
    inner = layout.get("cp", 1) * layout.get("tp", 1)
    degree = layout.get("dp_replicate", 1) * layout.get("dp_shard", 1)
    return Place(rank // inner % degree, degree, rank % inner == 0 and rank < inner * degree)


@dataclass(frozen=True)
class Box:
    """A region of a global tensor. Several ranks may hold copies of it."""

    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    copy: int = 0
    """Index of this copy, below `copies`."""
    copies: int = 1


@dataclass(frozen=True)
class Alike:
    """Ranks that hold equal copies of all unsharded tensors: all ranks, or the ranks of one pipeline stage."""

    index: int
    """Index of this rank among them."""
    count: int


def alike_in(layout: Mapping[str, int], rank: int, world_size: int) -> Alike:
    """Return the ranks of this rank's pipeline stage."""
    count = world_size // layout.get("pp", 1)
    return Alike(rank % count, count)


def box_of(tensor: Tensor, alike: Alike | None = None) -> Box:
    """Return the region of a tensor that this rank holds.

    Args:
        tensor: a DTensor, or a tensor that is not sharded.
        alike: ranks that hold copies of unsharded tensors; all ranks if None.
    """
    whole = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        alike = alike or Alike(_rank(), _world_size())
        return Box(whole, (0,) * len(whole), whole, alike.index, alike.count)
    mesh = tensor.device_mesh
    shape, offset = local_region(tensor)
    copy, copies = 0, 1
    for dim, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            copy, copies = copy * mesh.size(dim) + mesh.get_local_rank(dim), copies * mesh.size(dim)
    return Box(whole, offset, shape, copy, copies)


def holders_of(tensor: Tensor, alike: Alike, rank: int, axes: Collection[str] | None = None) -> tuple[int, ...]:
    """Return the ranks that hold the same region of a tensor as this rank, including itself.

    Args:
        tensor: a DTensor, or a tensor that is not sharded.
        alike: ranks that hold copies of unsharded tensors.
        rank: this rank.
        axes: mesh axes to consider for a DTensor; all if None.
    """
    if not isinstance(tensor, DTensor):
        first = rank - alike.index
        return tuple(range(first, first + alike.count))
    mesh, here = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    assert here is not None, "a rank that holds a part is in the mesh"
    names = mesh.mesh_dim_names or ("",) * mesh.ndim
    place = tuple(
        slice(None) if placement.is_replicate() and (axes is None or name in axes) else at
        for placement, name, at in zip(tensor.placements, names, here, strict=True)
    )
    return tuple(sorted(mesh.mesh[place].flatten().tolist()))


def local(tensor: Tensor) -> Tensor:
    """Return the local shard of a tensor, detached from autograd."""
    return shard(tensor).detach()


def shard(tensor: Tensor) -> Tensor:
    """Return the local shard of a tensor, attached to autograd."""
    # Not to_local(): a snapshot reads every tensor in every step.
    return local_tensor(tensor) if isinstance(tensor, DTensor) else tensor


def empty_like(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor without values that has the sharding of `tensor`, without DTensor's dispatch."""
    part = torch.empty_like(local(tensor), dtype=dtype or tensor.dtype)
    if not isinstance(tensor, DTensor):
        return part
    return DTensor.from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def fill(tensor: Tensor, value: Tensor) -> None:
    """Copy this rank's region of a global value into a tensor."""
    box = box_of(tensor)
    part = value[tuple(slice(start, start + size) for start, size in zip(box.offset, box.shape, strict=True))]
    with torch.no_grad():
        local(tensor).copy_(part)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
