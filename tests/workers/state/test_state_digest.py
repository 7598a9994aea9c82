"""A digest is equal for equal parts of a state, and different for any part that differs."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from regroup.workers.state.state_digest import digest_optimizer, digest_parts
from regroup.workers.state.training_state import CapturedState, TrainingState


def state(**facts: Any) -> CapturedState:
    captured = TrainingState({"model": torch.nn.Linear(3, 2)}, torch.device("cpu")).capture(1)
    tensors = {"w": torch.arange(6.0).view(2, 3), "empty": torch.zeros(0, 4)}
    return replace(
        captured, tensors=tensors, facts={"step": 3, "random": {"torch": "x"}, "other": {"a": 1, "b": [2]}} | facts
    )


def changed(before: CapturedState, after: CapturedState) -> set[str]:
    one, other = digest_parts(before), digest_parts(after)
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


def test_equal_states_have_equal_digests_wherever_they_are_in_memory() -> None:
    strided = torch.arange(12.0).view(2, 6)[:, ::2] / 2
    assert changed(state(), state()) == set()
    assert changed(replace(state(), tensors={"w": strided}), replace(state(), tensors={"w": strided.clone()})) == set()


@pytest.mark.parametrize("at", [0, 5])
def test_every_byte_of_a_tensor_counts(at: int) -> None:
    other = state()
    other.tensors["w"].view(-1)[at] += 1e-3
    assert changed(state(), other) == {"w"}


def test_shape_and_type_count_even_if_the_bytes_are_equal() -> None:
    def of(tensor: torch.Tensor) -> CapturedState:
        return replace(state(), tensors={"w": tensor})

    assert changed(of(torch.zeros(2, 3)), of(torch.zeros(3, 2))) == {"w"}
    assert changed(of(torch.zeros(4)), of(torch.zeros(4, dtype=torch.int32))) == {"w"}
    assert changed(of(torch.zeros(0, 4)), of(torch.zeros(4, 0))) == {"w"}


def test_facts_are_distinguished_by_key_and_generators_count_as_one() -> None:
    assert changed(state(), state(step=4)) == {"step"}
    assert changed(state(), state(other={"a": 1, "b": [3]})) == {"other b"}
    assert changed(state(), state(random={"torch": "y"})) == {"random"}


def train(optimizer: torch.optim.Optimizer, steps: int = 2) -> dict[str, str]:
    for step in range(steps):
        for group in optimizer.param_groups:
            for number, parameter in enumerate(group["params"]):
                parameter.grad = torch.full_like(parameter, number + step + 1.0)
        optimizer.step()
    return digest_optimizer(optimizer)


def test_a_digest_of_an_optimizer_has_its_parameters_and_each_kind_of_its_state() -> None:
    def made(names: bool) -> torch.optim.Optimizer:
        module = torch.nn.Linear(3, 2)
        torch.nn.init.constant_(module.weight, 0.5)
        torch.nn.init.zeros_(module.bias)
        return torch.optim.AdamW(module.named_parameters() if names else module.parameters(), lr=0.1)

    named, numbered = train(made(True)), train(made(False))
    state = {"optim.exp_avg", "optim.exp_avg_sq", "optim.step"}
    assert named.keys() == {"weight", "bias"} | state
    assert numbered.keys() == {"parameter 0", "parameter 1"} | state
    assert named == train(made(True)) and [*named.values()] == [*numbered.values()]
    longer = train(made(True), 3)
    assert all(named[name] != longer[name] for name in named)


def test_an_optimizer_with_many_parameters_has_few_digests() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(1000)]
    digests = train(torch.optim.SGD(parameters, lr=0.1))
    assert len(digests) == 250 and "parameter 996 to parameter 999" in digests
    with torch.no_grad():
        parameters[998].add_(1)
    after = digest_optimizer(torch.optim.SGD(parameters, lr=0.1))
    assert [name for name in digests if digests[name] != after[name]] == ["parameter 996 to parameter 999"]


def test_an_optimizer_without_parameters_has_no_digest() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    optimizer.param_groups.clear()
    assert digest_optimizer(optimizer) == {}
