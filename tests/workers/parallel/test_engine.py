"""The engine on one rank: phases, clipping, and evaluation between the parts of a step."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from regroup.workers.contract.messages import Phase
from regroup.workers.contract.rank_config import OptimizerConfig
from regroup.workers.data.sampler import MicroBatch
from regroup.workers.parallel.engine import Engine
from regroup.workers.parallel.mesh import local
from regroup.workers.parallel.parameter_names import parameters_of
from regroup.workers.parallel.strategy import Strategy
from regroup.workers.torch_internals.groups import fake_groups
from tests.support.machines.one_rank import one_rank

SYMBOLS = 12
MODEL = {
    "family": "transformer", "dim": 8, "layers": 2, "heads": 2, "kv_heads": 1, "ffn_dim": 12, "vocab_size": None,
    "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False,
}  # fmt: skip
GENERATOR = torch.Generator().manual_seed(1)
BATCHES = [
    MicroBatch(
        torch.randint(SYMBOLS, (2, 4), generator=GENERATOR), torch.randint(SYMBOLS, (2, 4), generator=GENERATOR), ()
    )
    for _ in range(2)
]


@pytest.fixture(autouse=True)
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    """This process is the only rank, or the first of several, which send nothing."""
    count = getattr(request, "param", 1)
    with one_rank() if count == 1 else fake_groups(count):
        yield


def of_ranks(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("group", [count], indirect=True)


def engine(kind: str = "fsdp", phases: list[str] | None = None, ranks: int = 1, **optimizer: Any) -> Engine:
    made = Engine(
        MODEL,
        SYMBOLS,
        {"dp_replicate" if kind == "ddp" else "dp_shard": ranks},
        torch.device("cpu"),
        Strategy(kind, "fp64", "none"),
        OptimizerConfig(name="sgd", **optimizer),
        micro_batches=2,
        example=BATCHES[0].inputs.to("meta"),
        loss_scale=1.0,
        phase=(phases if phases is not None else []).append,
    )
    made.initialise(3)
    return made


def values(of: Engine) -> dict[str, torch.Tensor]:
    return {name: local(tensor).detach().clone() for name, tensor in parameters_of(of.model)}


def test_each_phase_is_reported_when_it_begins() -> None:
    phases: list[str] = []
    one = engine(phases=phases)
    one.gradients(BATCHES)
    assert phases == [Phase.FORWARD, Phase.BACKWARD] * 2
    phases.clear()
    one.evaluate(BATCHES)
    assert phases == [Phase.VALIDATION] * 2


def test_an_evaluation_between_gradients_and_update_changes_nothing() -> None:
    one, other = engine(), engine()
    for number in range(2):
        losses = [each.gradients(BATCHES) for each in (one, other)]
        assert losses[0] == losses[1], f"step {number}"
        assert other.evaluate(BATCHES) == pytest.approx(losses[1], rel=1e-12)
        for each in (one, other):
            each.update(0.05, 0.0, 1.0)
    assert one.evaluate(BATCHES) < losses[0]
    for name, value in values(one).items():
        assert torch.equal(values(other)[name], value)


@pytest.mark.parametrize(("limit", "factor"), [(None, 1.0), (1e9, 1.0), (0.5, 0.5)])
def test_gradients_are_corrected_and_clipped_to_the_limit(limit: float | None, factor: float) -> None:
    one = engine(clip_norm=limit, momentum=0.0, weight_decay=0.0)
    before = values(one)
    one.gradients(BATCHES)
    gradient = {name: local(tensor.grad).clone() for name, tensor in parameters_of(one.model)}
    norm = one.squared_norm() ** 0.5
    assert norm == pytest.approx(float(torch.stack([each.norm() for each in gradient.values()]).norm()), rel=1e-12)
    one.update(0.1, norm=1.0, correction=1 / norm)
    for name, value in values(one).items():
        torch.testing.assert_close(value, before[name] - 0.1 * factor / norm * gradient[name], rtol=1e-4, atol=1e-8)


def test_operations_are_counted_for_any_number_of_samples() -> None:
    one = engine()
    assert one.flops(6) == 3 * one.flops(2) > 0
    assert (one.times(), one.facts({}, 1)) == ({}, {}), "these are of pipelines"


@of_ranks(2)
def test_after_an_evaluation_no_parameter_stays_gathered() -> None:
    one = engine(ranks=2)
    one.evaluate(BATCHES)
    assert [name for name, tensor in one.model.named_parameters() if not isinstance(tensor, DTensor)] == []


@of_ranks(2)
def test_gradients_of_replicas_are_parts_of_the_buckets_and_no_second_copy() -> None:
    one = engine("ddp", ranks=2)
    one.gradients(BATCHES)
    storages = {
        tensor.grad.untyped_storage().data_ptr() for tensor in one.model.parameters() if tensor.grad is not None
    }
    assert len(storages) == 1
