"""Regions of sharded tensors, and wrappers of modules."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

WRAPPERS = frozenset({"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Names of the attribute in which wrappers of torch keep the module: DDP, compiler, checkpointing and FSDP1."""


def local_tensor(tensor: DTensor) -> Tensor:
    """Return the local shard, attached to autograd. Much faster than `to_local()`, which is an autograd function."""
    return tensor._local_tensor  # pyright: ignore[reportPrivateUsage]


def local_region(tensor: DTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and offset of the local shard in the global tensor."""
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(shape), tuple(offset)


def whole_group(mesh: DeviceMesh) -> dist.ProcessGroup:
    """Return the process group of all ranks of a mesh. Created on first use, which is a collective."""
    return (mesh if mesh.ndim == 1 else mesh._flatten()).get_group()  # pyright: ignore[reportPrivateUsage]


def recompute_in_backward(block: nn.Module, contexts: Callable[[], Any] | None) -> nn.Module:
    """Wrap a block so that the backward pass recomputes its activations.

    Args:
        block: a module without dropout. Random state is not saved for the second forward.
        contexts: returns the contexts of `create_selective_checkpoint_contexts`; None recomputes everything.
    """
    options: dict[str, Any] = {} if contexts is None else {"context_fn": contexts}
    return checkpoint_wrapper(block, preserve_rng_state=False, **options)
