"""Kinds of tensors that a snapshot can hold, and the parts of sparse ones."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from regroup.workers.torch_internals.operations import is_traceable_wrapper_subclass

_ORDINARY = frozenset({Tensor, nn.Parameter, nn.Buffer, DTensor})
_ROWS_COMPRESSED = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED = (*_ROWS_COMPRESSED, torch.sparse_csc, torch.sparse_bsc)


def is_ordinary(tensor: Tensor) -> bool:
    """Return True for a dense tensor of torch's own types: neither sparse nor refused. Faster than the other checks."""
    is_dense = type(tensor) in _ORDINARY and tensor.layout is torch.strided
    return is_dense and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def is_sparse(tensor: Tensor) -> bool:
    """Return True for a tensor that stores only some of its values."""
    return tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED


def compressed_parts(tensor: Tensor) -> dict[str, Tensor]:
    """Return the dense parts of a tensor in one of the layouts CSR, CSC, BSR and BSC."""
    if tensor.layout in _ROWS_COMPRESSED:
        return {"compressed": tensor.crow_indices(), "plain": tensor.col_indices(), "values": tensor.values()}
    return {"compressed": tensor.ccol_indices(), "plain": tensor.row_indices(), "values": tensor.values()}


def reason_to_refuse(tensor: Tensor) -> str:
    """Return what a tensor is and the remedy if a snapshot cannot hold it; otherwise the empty string."""
    if is_ordinary(tensor):
        return ""
    if is_lazy(tensor):
        return "a lazy parameter without a shape: run one forward pass before track()"
    if tensor.is_meta:
        return "on the meta device and has no values: materialize it before track()"
    if tensor.is_quantized:
        return "a quantized tensor, which cannot be saved: keep its int_repr(), scale and zero point instead"
    if tensor.is_nested:
        return "a nested tensor, which cannot be saved: keep its values and offsets instead"
    if tensor.layout is not torch.strided and not is_sparse(tensor):
        return f"a tensor of layout {tensor.layout}, which cannot be saved: convert it with to_dense()"
    if not isinstance(tensor, DTensor) and is_traceable_wrapper_subclass(tensor):
        kind = type(tensor)
        return (
            f"a {kind.__module__}.{kind.__qualname__}, whose values a snapshot cannot see: keep its inner tensors in "
            "an object with state_dict() and load_state_dict()"
        )
    return ""
