"""Content of a module: parameters as torch names them, each once, with buffers and modes."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from regroup.workers.parallel.parameter_names import canonical
from regroup.workers.state.module_state import ModuleState


def _tied() -> nn.Module:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    return nn.Sequential(first, second)


def _shared() -> nn.Module:
    block = nn.Linear(2, 2)
    return nn.Sequential(block, nn.Sequential(block, nn.BatchNorm1d(2)))


def _parametrized() -> nn.Module:
    return nn.Sequential(parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Identity()))


def _without_bias() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2, elementwise_affine=False))


class _Renamed(nn.Linear):
    """A wrapper that names its parameters itself, as some libraries do."""

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            yield f"flat.{name}", parameter


@pytest.mark.parametrize("make", [_tied, _shared, _parametrized, _without_bias, lambda: _Renamed(2, 2)])
def test_parameters_are_those_that_torch_names_in_its_order(make: Callable[[], nn.Module]) -> None:
    module = make()
    expected = [(canonical(name), id(value)) for name, value in module.named_parameters()]
    found = ModuleState("model", module).read_content().parameters
    assert [(name, id(value)) for name, value in found.items()] == expected


def test_a_shared_module_in_evaluation_mode_is_listed_under_each_name() -> None:
    module = _shared()
    module[0].eval()  # type: ignore[index]
    assert ModuleState("model", module).read_content().modes == {"frozen": [], "evaluated": ["0", "1.0"]}


def test_frozen_parameters_are_listed_without_the_prefix_of_the_object() -> None:
    module = nn.Linear(2, 2).requires_grad_(False)
    content = ModuleState("average", module).read_content()
    assert content.modes["frozen"] == ["weight", "bias"] and set(content.parameters) == {
        "average.weight",
        "average.bias",
    }


def test_buffers_are_found_once_there_are_some() -> None:
    module = nn.Linear(2, 2)
    state = ModuleState("model", module)
    assert state.read_content().buffers == {}
    module.register_buffer("mean", torch.zeros(2))
    module.register_buffer("scratch", torch.zeros(2), persistent=False)
    assert set(state.read_content().buffers) == {"buffer.mean"}
