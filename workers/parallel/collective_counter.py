"""Collectives of a step, counted by kind: how many, and of how many bytes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_KINDS = ("reduce_scatter", "all_gather", "all_reduce", "broadcast", "all_to_all", "send", "recv")
_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")


class Collectives(TorchDispatchMode):
    """While it is entered, counts what this process sends through process groups, whoever calls them.

    The bytes of a collective are those of the whole tensor: what is reduced, what is gathered, what goes to be
    scattered, what is sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def facts(self) -> dict[str, float]:
        """`all_reduce` and so on: how often, and `all_reduce_bytes`: how much."""
        return {**self.calls, **{f"{kind}_bytes": count for kind, count in self.bytes.items()}}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its own dispatch comes first, and what that sends comes here
        result = _call(func, args, kwargs)
        if func.namespace in _NAMESPACES and (kind := _kind(func.__name__)):
            self.calls[kind] += 1
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.bytes[kind] += max((tensor.nbytes for tensor in tensors), default=0)
        return result


def wire_bytes(kind: str, payload_bytes: float, ranks: int) -> float:
    """What a rank sends for a collective by ring algorithms (Patarasuk and Yuan 2009)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(kind, 1.0) * payload_bytes


def _call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Any:
    return func(*args, **(kwargs or {}))


def _kind(name: str) -> str | None:
    plain = name.replace("allreduce", "all_reduce").replace("allgather", "all_gather").replace("alltoall", "all_to_all")
    return next((kind for kind in _KINDS if kind in plain), None)
