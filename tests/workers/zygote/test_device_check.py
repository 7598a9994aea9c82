"""A device that multiplies wrongly is reported, even for a single wrong element."""

import os

import pytest
import torch

from regroup.workers.zygote import device_check
from regroup.workers.zygote.device_check import check, wrong_cores, wrong_gpus


def lying(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a product with one wrong element."""
    product = left @ right
    product[-1, -1] += 1
    return product


def test_these_cores_multiply_right_and_keep_their_turns_short() -> None:
    before = os.sched_getaffinity(0)
    found = check({"device": "cpu"}, [])
    assert found["failed"] == [] and found["seconds"] < 3
    assert os.sched_getaffinity(0) == before


def test_a_core_that_is_off_by_one_is_named() -> None:
    bad = max(os.sched_getaffinity(0))

    def on_the_bad_core(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return lying(left, right) if os.sched_getaffinity(0) == {bad} else left @ right

    assert wrong_cores(on_the_bad_core) == [f"core {bad} multiplies wrongly: a product of whole numbers is not exact"]


def test_a_device_that_is_not_there_is_named() -> None:
    there = torch.cuda.device_count()
    assert wrong_gpus([there], torch.matmul) == [f"CUDA device {there} is missing: this node has {there}"]


@pytest.mark.cuda
def test_gpus_that_lie_are_named_and_others_are_not() -> None:
    assert wrong_gpus([0], torch.matmul) == []
    assert wrong_gpus([0], lying) == [
        "CUDA device 0 multiplies wrongly in torch.float32, torch.float16, torch.bfloat16"
    ]


def test_the_sums_are_exact_in_every_type_that_is_used() -> None:
    left, right = device_check._factors()  # pyright: ignore[reportPrivateUsage]
    product = left @ right
    assert int(product.abs().max()) <= 256, "bfloat16 holds whole numbers to there"
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        assert torch.equal((left.to(kind) @ right.to(kind)).to(torch.int32), product)
