"""Selection of the blocks and operations to recompute."""

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

from regroup.workers.models import build_model
from regroup.workers.parallel.activation_checkpoint import recompute
from regroup.workers.parallel.parallelize import initialise

CONFIG = {
    "family": "transformer", "dim": 64, "layers": 9, "heads": 4, "kv_heads": 4, "ffn_dim": 256, "vocab_size": 32,
    "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False,
}  # fmt: skip


def step(policy: str | int) -> tuple[int, list[torch.Tensor]]:
    """Peak bytes of activations and gradients of a forward and backward, and the gradients."""
    model = build_model(CONFIG, 32).to_empty(device="cpu")
    initialise(model, 0)
    recompute(model.get_submodule("layers"), policy, 9)  # type: ignore[arg-type]
    tokens = torch.arange(4 * 64).view(4, 64) % 32
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    return peak, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.fixture(scope="module")
def kept() -> tuple[int, list[torch.Tensor]]:
    return step("none")


@pytest.mark.parametrize(("policy", "most"), [("full", 0.4), ("sqrt", 0.6), (2, 0.75), ("selective", 0.8)])
def test_the_peak_falls_and_gradients_stay_bitwise_the_same(
    kept: tuple[int, list[torch.Tensor]], policy: str | int, most: float
) -> None:
    peak, gradients = step(policy)
    assert peak < most * kept[0], peak / kept[0]
    assert all(torch.equal(one, other) for one, other in zip(gradients, kept[1], strict=True))
