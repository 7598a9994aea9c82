"""Compiled blocks compute the same, in pipelines too, and come back bitwise."""

import signal
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch import config as graphs

from regroup.workers.models import build_model
from regroup.workers.models.transformer import rotary
from regroup.workers.parallel.compiled import compile_blocks
from regroup.workers.parallel.parallelize import initialise

Config = dict[str, Any]
LAYOUTS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "ddp": ("ddp", {"dp_replicate": 2}, {}),
    "fsdp": ("fsdp", {"dp_shard": 2}, {}),
    "pp": ("fsdp", {"pp": 2}, {"schedule": "1f1b"}),
}


@pytest.fixture
def divisible(config: Config) -> Config:
    config["model"] |= {"layers": 2, "heads": 4, "kv_heads": 2, "vocab_size": 264}
    return config


def run(agent: Any, config: Config, name: str, memory: str, **options: Any) -> Any:
    return agent.spread(config, LAYOUTS[name], memory, **options)


@pytest.mark.parametrize(
    "name", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow), pytest.param("pp", marks=pytest.mark.slow)]
)
def test_it_computes_what_is_not_compiled(agent: Any, divisible: Config, name: str) -> None:
    plain = run(agent, divisible, name, f"plain-{name}")
    divisible["training"]["compile"] = "default"
    compiled = run(agent, divisible, name, f"compiled-{name}")
    assert set(compiled.codes) == {0}, compiled.errors
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert compiled.result["samples"] == plain.result["samples"]


def test_a_killed_rank_costs_no_step_and_no_bit(agent: Any, divisible: Config) -> None:
    divisible["training"]["compile"] = "default"
    whole = run(agent, divisible, "fsdp", "compiled-whole")
    divisible["faults"] = [{"at": {"rank": 1, "step": 3, "phase": "backward"}, "do": "sigkill"}]
    struck = run(agent, divisible, "fsdp", "compiled-struck", show_errors=False)
    assert struck.codes[1] == -signal.SIGKILL
    state = {"source": "memory", "step": 2, "generation": 1}
    after = run(agent, divisible, "fsdp", "compiled-struck", generation=2, restore=state, faults_fired=[0])
    assert after.result == whole.result


def kept_bytes(share: float | None) -> tuple[int, Tensor]:
    """What a compiled block keeps for its backward, beside its parameters; and a gradient."""
    torch.compiler.reset()
    config = {
        "family": "transformer", "dim": 64, "layers": 1, "heads": 4, "kv_heads": 4, "ffn_dim": 512, "vocab_size": 32,
        "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False,
    }  # fmt: skip
    model: Any = build_model(config, 32).to_empty(device="cpu")
    initialise(model, 0)
    compile_blocks(model.layers, "default", share)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = model.embed(torch.arange(4 * 64).view(4, 64) % 32).detach().requires_grad_()
    rotation = rotary(64, 16, 1e4, torch.device("cpu"))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = model.layers["0"](x, rotation)
    y.square().sum().backward()
    return sum(kept.values()), model.layers["0"].ffn.gate.weight.grad


@pytest.mark.filterwarnings("ignore:.*[Dd]istutils", "ignore:Setuptools")  # the compiler's imports
def test_within_a_share_of_memory_less_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "activation_memory_budget", 1.0)
    whole, gradient = kept_bytes(None)
    part, same = kept_bytes(0.3)
    assert part < 0.6 * whole, part / whole
    assert torch.allclose(same, gradient, rtol=1e-4)
