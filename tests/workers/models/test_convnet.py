"""The convolutional family's parts against their definitions."""

from typing import Any

import pytest
import torch

from regroup.workers.models import build_model, tiny_of

CONFIG: dict[str, Any] = {
    "family": "convnet", "channels": 2, "classes": 5, "dim": 8, "layers": 3, "ffn_dim": None,
    "norm_over": "micro_batch", "norm_eps": 1e-5, "norm_momentum": 0.1,
}  # fmt: skip


def real(config: dict[str, Any] = CONFIG) -> Any:
    model = build_model(config, 5)
    assert all(parameter.is_meta for parameter in model.parameters())
    model = model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.state_dict(keep_vars=True).items():
            value.copy_(model.initial(name, value.shape, generator))  # pyright: ignore[reportCallIssue]
    return model


def test_an_image_has_a_logit_a_class() -> None:
    model = real()
    assert model(torch.randn(4, 2, 6, 6)).shape == (4, 5)
    assert model.stream_shape(torch.Size((4, 2, 6, 6))) == (4, 6, 6, 8)
    assert model.layers["0"].widen.up.out_features == 32, "four times dim, if not said"


def test_its_stages_one_after_the_other_are_the_whole() -> None:
    whole, first, second = real(), real(), real()
    first.cut(range(2))
    second.cut(range(2, 3))
    assert list(second.layers) == ["2"] and second.stem is None and first.head is None
    images = torch.randn(4, 2, 6, 6)
    between = first(images)
    assert between.shape == whole.stream_shape(images.shape)
    assert torch.equal(second(between), whole(images))


def test_it_begins_with_logits_of_the_size_of_its_input() -> None:
    assert 0.1 < real(CONFIG | {"layers": 12, "dim": 32})(torch.randn(64, 2, 8, 8)).std() < 10


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.classes is 5 but the data has labels up to 7"):
        build_model(CONFIG, 8)


@pytest.mark.parametrize("family", ["transformer", "convnet"])
def test_a_family_has_a_tiny_example_that_runs(family: str) -> None:
    tiny = tiny_of({"family": family})
    base = (
        CONFIG
        if family == "convnet"
        else {"family": family, "rope_theta": 1e4, "norm_eps": 1e-5, "tie_embeddings": False}
    )
    model = build_model({**base, **tiny.config}, tiny.symbols).to_empty(device="cpu")
    assert model(tiny.inputs).shape == (*tiny.labels.shape, tiny.symbols)
