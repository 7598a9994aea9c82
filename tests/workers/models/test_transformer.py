"""The transformer's parts against their definitions."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regroup.workers.models import build_model
from regroup.workers.models.transformer import rotary, rotate

CONFIG: dict[str, Any] = {
    "family": "transformer",
    "dim": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "ffn_dim": None,
    "vocab_size": None,
    "rope_theta": 10000.0,
    "norm_eps": 1e-5,
    "tie_embeddings": False,
}


def real(config: dict[str, Any], vocab_size: int = 19) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build_model(config, vocab_size)
    assert all(parameter.is_meta for parameter in model.parameters())
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def test_logits_have_a_row_a_position_and_know_nothing_of_the_future() -> None:
    model = real(CONFIG)
    tokens = torch.randint(0, 19, (2, 10))
    logits = model(tokens)
    assert logits.shape == (2, 10, 19)
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 19
    assert torch.allclose(model(changed)[:, :6], logits[:, :6], atol=1e-5)
    assert not torch.allclose(model(changed)[:, 6:], logits[:, 6:], atol=1e-3)


def test_shared_heads_equal_full_attention_with_repeated_ones() -> None:
    grouped, full = real(CONFIG), real({**CONFIG, "kv_heads": 4})
    state = grouped.state_dict()
    for name, value in state.items():
        if ".key." in name or ".value." in name:
            state[name] = value.unflatten(0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1)
    full.load_state_dict(state)
    tokens = torch.randint(0, 19, (2, 10))
    assert torch.allclose(grouped(tokens), full(tokens), atol=1e-5)


def test_rotation_keeps_lengths_and_only_distance_matters() -> None:
    rotation = rotary(20, 8, 10000.0, torch.device("cpu"))
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(i: int, j: int) -> Tensor:
        at = [rotate(x, rotation[:, p : p + 1]) for x, p in ((query, i), (key, j))]
        return (at[0] * at[1]).sum()

    assert torch.allclose(product(3, 1), product(15, 13), atol=1e-5)
    assert not torch.allclose(product(3, 1), product(3, 2), atol=1e-4)
    assert torch.allclose(rotate(query, rotation[:, 7:8]).norm(), query.norm(), atol=1e-6)
    assert torch.equal(rotate(query, rotation[:, :1]), query)


def test_tied_embeddings_have_no_head_of_their_own() -> None:
    model = real({**CONFIG, "tie_embeddings": True})
    names = [name for name, _ in model.named_parameters()]
    assert "embed.weight" in names
    assert not any(name.startswith("head") for name in names)
    assert model(torch.randint(0, 19, (1, 4))).shape == (1, 4, 19)


def test_sizes_follow_the_config() -> None:
    shapes = {name: tuple(value.shape) for name, value in build_model(CONFIG, 19).named_parameters()}
    assert shapes["layers.1.attention.key.weight"] == (16, 32)
    assert shapes["layers.1.ffn.up.weight"] == (96, 32)  # 8/3 of 32 rounded up to a multiple of 32
    assert shapes["embed.weight"] == (19, 32)
    assert shapes["norm.weight"] == (32,)


def test_what_cannot_be_built_is_explained() -> None:
    with pytest.raises(ValueError, match="unknown model family 'rnn'; known: convnet, transformer"):
        build_model({**CONFIG, "family": "rnn"}, 19)
    with pytest.raises(ValueError, match=r"model\.vocab_size is 10 but the tokenizer has 19 tokens"):
        build_model({**CONFIG, "vocab_size": 10}, 19)
