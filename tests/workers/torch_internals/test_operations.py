"""Operators of torch by their private names: each is the one that a public function calls."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor
from torch.nn import functional

from regroup.workers.torch_internals.groups import fake_groups
from regroup.workers.torch_internals.operations import (
    ATTENTION,
    COLLECTIVE_NAMESPACES,
    COLLECTIVES,
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    multiply_all_,
    norms_of,
    tree_leaves,
)


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func)
        return func(*args, **(kwargs or {}))


def test_attention_on_a_cpu_calls_a_known_kernel() -> None:
    heads = torch.rand(1, 2, 8, 4, requires_grad=True)
    with _Calls() as calls:
        functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    assert calls.seen & ATTENTION


def test_tensor_parallelism_calls_known_collectives() -> None:
    def each(ranks: list[int]) -> None:
        tensor = torch.ones(4, 4)
        all_reduce(tensor, "sum", ranks)
        all_gather_tensor(tensor, 0, ranks)
        reduce_scatter_tensor(tensor, "sum", 0, ranks)

    with fake_groups(2), _Calls() as calls:
        each([0, 1])
    assert calls.seen >= COLLECTIVES
    assert {operator.namespace for operator in COLLECTIVES} <= {*COLLECTIVE_NAMESPACES}


def test_a_plain_collective_has_a_known_namespace() -> None:
    with fake_groups(2), _Calls() as calls:
        torch.distributed.all_reduce(torch.ones(2))
    assert any(operator.namespace in COLLECTIVE_NAMESPACES for operator in calls.seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_tensors_at_once_equal_one_after_the_other(dtype: torch.dtype) -> None:
    tensors = [torch.rand(3, 2, dtype=dtype), torch.rand(5, dtype=dtype), torch.zeros((), dtype=dtype)]
    assert [float(norm) for norm in norms_of(tensors)] == pytest.approx([float(each.norm()) for each in tensors])
    expected = [each * 0.25 for each in tensors]
    multiply_all_(tensors, 0.25)
    assert all(torch.equal(now, then) for now, then in zip(tensors, expected, strict=True))


def test_leaves_of_nested_containers_are_found() -> None:
    assert tree_leaves(({"a": 1, "b": [2, None]}, 3)) == [1, 2, None, 3]


class _Wrapper(Tensor):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return [], None

    @staticmethod
    def __tensor_unflatten__(*parts: Any) -> Tensor:
        return torch.zeros(1)


def test_a_wrapper_of_tensors_is_recognized_and_a_plain_tensor_is_none() -> None:
    assert is_traceable_wrapper_subclass(torch.zeros(1).as_subclass(_Wrapper))
    assert not is_traceable_wrapper_subclass(torch.zeros(1))
