"""The transformer and its loss against formulas that share no code with them, and against another implementation."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regroup.workers.models import build_model
from regroup.workers.parallel.loss import label_loss
from tests.support.inputs.dense_training import one_thread
from tests.support.reference.training import IGNORED, cross_entropy
from tests.support.reference.transformer import Transformer

VOCABULARY, HEADS, LAYERS, THETA, EPS = 19, 4, 2, 100.0, 1e-3
LIMIT = 1e-12
"""Relative, in float64."""
LLAMA_LIMIT = 1e-5
"""Llama of `transformers` computes angles in float32."""
LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "layers": "model.layers",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention": "self_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "o_proj",
    "ffn": "mlp",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(params=[(1, True), (2, False), (4, True)], ids=["one, tied", "two", "four, tied"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A model with one, two or four key and value heads."""
    kv_heads, is_tied = request.param
    return {
        "family": "transformer",
        "dim": 24,
        "layers": LAYERS,
        "heads": HEADS,
        "kv_heads": kv_heads,
        "ffn_dim": 40,
        "vocab_size": VOCABULARY,
        "rope_theta": THETA,
        "norm_eps": EPS,
        "tie_embeddings": is_tied,
    }


@pytest.fixture
def model(config: dict[str, Any]) -> nn.Module:
    """The product's model in float64. No value is at its initial one, and the logits are far from uniform."""
    model = build_model(config, VOCABULARY).to(torch.float64).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3, generator=generator)
    return model


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Tokens and labels, of which every third is ignored."""
    generator = torch.Generator().manual_seed(6)
    tokens, labels = torch.randint(VOCABULARY, (2, 3, 20), generator=generator)
    labels.flatten()[::3] = IGNORED
    return tokens, labels


def formulas(model: nn.Module, config: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits by the formulas, and the parameters that they were computed from."""
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    return Transformer(LAYERS, HEADS, config["kv_heads"], THETA, EPS)(parameters, tokens), parameters


def gradients(loss: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return the error of each tensor."""
    assert found.keys() == expected.keys()
    return {name: error(found[name], value) for name, value in expected.items()}


def error(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference relative to the norm."""
    return ((found - expected).norm() / expected.norm()).item()


def test_logits_loss_and_gradients_are_those_of_the_formulas(
    model: nn.Module, config: dict[str, Any], batch: tuple[Tensor, Tensor]
) -> None:
    tokens, labels = batch
    expected, parameters = formulas(model, config, tokens)
    logits = model(tokens)
    assert error(logits, expected) <= LIMIT
    loss, right = label_loss(logits, labels), cross_entropy(expected, labels)
    assert error(loss, right) <= LIMIT
    wrong = errors(gradients(loss, dict(model.named_parameters())), gradients(right, parameters))
    assert max(wrong.values()) <= LIMIT, wrong


def test_labels_that_are_all_ignored_add_nothing(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    tokens, labels = batch
    for loss in (label_loss, cross_entropy):
        value = loss(model(tokens), torch.full_like(labels, IGNORED))
        assert value.item() == 0
        found = gradients(value, dict(model.named_parameters()))
        assert max(float(gradient.abs().max()) for gradient in found.values()) == 0


def test_the_formulas_are_those_of_llama(
    model: nn.Module, config: dict[str, Any], batch: tuple[Tensor, Tensor]
) -> None:
    tokens, labels = batch
    expected, parameters = formulas(model, config, tokens)
    llama = llama_of(config)
    llama.load_state_dict({llama_name(name): value for name, value in parameters.items()}, strict=False)
    logits = llama(tokens).logits
    assert error(logits, expected) <= LLAMA_LIMIT
    valid = labels != IGNORED
    theirs = nn.functional.cross_entropy(logits[valid], labels[valid], reduction="sum")
    named = dict(llama.named_parameters())
    found = gradients(theirs, {name: named[llama_name(name)] for name in parameters})
    assert len(named) == len(parameters)
    wrong = errors(found, gradients(cross_entropy(expected, labels), parameters))
    assert max(wrong.values()) <= LLAMA_LIMIT, wrong


def llama_of(config: dict[str, Any]) -> Any:
    """Return the Llama of `transformers` with this architecture, in float64."""
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM  # slow to import

    made = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=config["dim"],
        intermediate_size=config["ffn_dim"],
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=config["kv_heads"],
        rms_norm_eps=EPS,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=config["tie_embeddings"],
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(made).to(torch.float64)


def llama_name(name: str) -> str:
    """Return `model.layers.0.self_attn.q_proj.weight` for `layers.0.attention.query.weight`."""
    return ".".join(LLAMA_NAMES.get(part, part) for part in name.split("."))
