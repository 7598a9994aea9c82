"""Counts of the collectives of a step by kind, and their bytes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from regroup.workers.torch_internals.operations import COLLECTIVE_NAMESPACES, TorchDispatchMode, tree_leaves

_KINDS = ("reduce_scatter", "all_gather", "all_reduce", "broadcast", "all_to_all", "send", "recv")


class Collectives(TorchDispatchMode):
    """Counts the collectives that this process starts while the mode is entered.

    The bytes of a collective are those of the global tensor: the input of a reduction, the result of a gather, the
    input of a scatter, or the message.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def facts(self) -> dict[str, float]:
        """Return the number of calls by kind (`all_reduce` …), and the bytes by kind (`all_reduce_bytes` …)."""
        return {**self.calls, **{f"{kind}_bytes": count for kind, count in self.bytes.items()}}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor's dispatch runs first; its collectives arrive here
        result = _call(func, args, kwargs)
        if func.namespace in COLLECTIVE_NAMESPACES and (kind := _kind(func.__name__)):
            self.calls[kind] += 1
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.bytes[kind] += max((tensor.nbytes for tensor in tensors), default=0)
        return result


def wire_bytes(kind: str, payload_bytes: float, ranks: int) -> float:
    """Return the bytes that a rank sends for a collective with ring algorithms (Patarasuk and Yuan 2009)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(kind, 1.0) * payload_bytes


def _call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Any:
    return func(*args, **(kwargs or {}))


def _kind(name: str) -> str | None:
    plain = name.replace("allreduce", "all_reduce").replace("allgather", "all_gather").replace("alltoall", "all_to_all")
    return next((kind for kind in _KINDS if kind in plain), None)
