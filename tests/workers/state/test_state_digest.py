"""A digest is equal for equal parts of a state, and different for any part that differs."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from regroup.workers.state.state_digest import digest_parts
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
