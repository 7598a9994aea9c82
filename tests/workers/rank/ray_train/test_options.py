"""Options of a trainer that the job does not support."""

from typing import Any

import pytest

from regroup.workers.rank.ray_train.options import TrainerOptions, budget_note, unsupported_option


def test_a_trainer_that_fits_is_not_refused() -> None:
    assert unsupported_option(TrainerOptions((2, 2)), 2, "cpu") is None
    assert unsupported_option(TrainerOptions((1, 4), use_gpu=True, gpus=1.0), 3, "cuda") is None


@pytest.mark.parametrize(
    ("requested", "world_size", "device", "message"),
    [
        ({"workers": (0, 0)}, 1, "cpu", "num_workers=0"),
        ({"workers": (4, 4)}, 2, "cpu", "num_workers=4), but the job runs on 2 ranks"),
        ({"workers": (2, 4)}, 5, "cpu", "num_workers=(2, 4)), but the job runs on 5 ranks"),
        ({"use_gpu": True, "gpus": 1.0}, 1, "cpu", "use_gpu=True), but resources.device of the job is cpu"),
        ({"use_gpu": False}, 1, "cuda", "use_gpu=False), but resources.device of the job is cuda"),
        ({"use_gpu": True, "gpus": 2.0}, 1, "cuda", "'GPU': 2"),
        ({"datasets": ("train",)}, 1, "cpu", "data.prepare"),
        ({"backend": "JaxConfig"}, 1, "cpu", "JaxConfig"),
        ({"callbacks": ("StateManagerCallback",)}, 1, "cpu", "only UserCallbacks"),
        ({"environment": ("pip",)}, 1, "cpu", "['pip']"),
        ({"has_validation": True}, 1, "cpu", "validation_config"),
    ],
)
def test_what_does_not_fit_is_named_with_both_sides(requested: Any, world_size: int, device: str, message: str) -> None:
    why = unsupported_option(TrainerOptions(**requested), world_size, device)
    assert why is not None and message in why


@pytest.mark.parametrize(
    ("requested", "allowed", "is_noted"), [(0, 0, False), (1, 3, False), (3, 1, True), (-1, 9, True)]
)
def test_a_request_for_more_retries_than_allowed_gives_a_note(requested: int, allowed: int, is_noted: bool) -> None:
    assert (budget_note(TrainerOptions(max_failures=requested), allowed) is not None) == is_noted
