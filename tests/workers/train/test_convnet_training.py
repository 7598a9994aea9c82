"""The trainer on images: digits are learnt, on any layout alike, and a killed rank costs nothing."""

import math
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.data.prepare.preparation import summary
from tests.support.inputs.data_inputs import prepared, recipe
from tests.support.inputs.rank_configs import changed, fault

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LAYOUTS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "ddp": ("ddp", {"dp_replicate": 2}, {}),
    "fsdp": ("fsdp", {"dp_shard": 4}, {}),
    "tp": ("fsdp", {"dp_shard": 2, "tp": 2}, {"sequence_parallel": False}),
    "pp": ("fsdp", {"dp_shard": 2, "pp": 2}, {"schedule": "1f1b"}),
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Prepared by the function of the example."""
    folder = tmp_path_factory.mktemp("digits")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import digits

        digits.main(folder)
    finally:
        sys.path.remove(str(EXAMPLES))
    data = recipe(
        str(folder / "train.jsonl"), "jsonl", function="digits:images", reads="images", batch_rows=512,
        validation=[str(folder / "held-out.jsonl")],
    )  # fmt: skip
    meta = prepared(data, folder / "records", code=str(EXAMPLES))
    return {**summary(meta), "directory": str(folder / "records" / meta["fingerprint"])}


@pytest.fixture
def images(config: RankConfig) -> RankConfig:
    config = replace(config, model={
        "family": "convnet", "channels": 1, "classes": 10, "dim": 8, "layers": 2, "ffn_dim": None,
        "norm_over": "micro_batch", "norm_eps": 1e-5, "norm_momentum": 0.1,
    })  # fmt: skip
    return changed(config, training={"sequence": None, "micro_batch": 4, "global_batch": 32})


def run(agent: Any, config: RankConfig, digits: dict[str, Any], name: str, memory: str, **options: Any) -> Any:
    return agent.spread(config, LAYOUTS[name], memory, dataset=digits, **options)


def test_digits_are_learnt(agent: Any, images: RankConfig, digits: dict[str, Any]) -> None:
    images = changed(images, model={"dim": 16})
    images = changed(images, training={"steps": 100, "validate_every": 100, "micro_batch": 16})
    images = changed(images, training={"optimizer": {"lr": 0.02}})
    rows = run(agent, images, digits, "ddp", "learnt").rows
    assert rows[0]["tokens"] == 32, "a label each"
    assert rows[0]["loss"] == pytest.approx(math.log(10), rel=0.3)
    assert rows[-1]["validation_loss"] < 0.5


@pytest.mark.parametrize("name", ["fsdp", "tp", "pp"])
def test_every_layout_computes_the_same(agent: Any, images: RankConfig, digits: dict[str, Any], name: str) -> None:
    images = changed(images, training={"precision": "fp64"})
    one = run(agent, images, digits, "ddp", "images-ddp")
    other = run(agent, images, digits, name, f"images-{name}")
    assert set(other.codes) == {0}, other.errors
    assert other.losses == pytest.approx(one.losses, rel=1e-11)
    held_out = [[row["validation_loss"] for row in rows.rows if row["validation_loss"]] for rows in (one, other)]
    assert len(held_out[0]) == 2
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-11), "by statistics that all have kept"
    assert other.result["samples"] == one.result["samples"]


@pytest.mark.parametrize("name", ["fsdp", pytest.param("tp", marks=pytest.mark.slow), "pp"])
def test_a_killed_rank_costs_no_step_and_no_bit(
    agent: Any, images: RankConfig, digits: dict[str, Any], name: str
) -> None:
    whole = run(agent, images, digits, name, f"images-whole-{name}")
    images = changed(images, faults=[fault(1, 3, "sigkill", "backward")])
    faulty = run(agent, images, digits, name, f"images-faulty-{name}", show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    state = {"source": "memory", "step": 2, "generation": 1}
    after = run(agent, images, digits, name, f"images-faulty-{name}", generation=2, restore=state, faults_fired=[0])
    assert set(after.codes) == {0}, after.errors
    assert after.result == whole.result
    assert after.rows[-1]["validation_loss"] == whole.rows[-1]["validation_loss"], "running statistics were restored"


def test_statistics_go_to_another_layout(agent: Any, images: RankConfig, digits: dict[str, Any]) -> None:
    images = changed(images, training={"precision": "fp64"})
    whole = run(agent, images, digits, "tp", "images-from-tp")
    state = {"source": "memory", "step": 3, "generation": 1}
    after = run(agent, images, digits, "ddp", "images-from-tp", generation=2, restore=state, source_world=4)
    assert set(after.codes) == {0}, after.errors
    assert after.losses == pytest.approx(whole.losses[3:], rel=1e-11)
    assert after.rows[-1]["validation_loss"] == pytest.approx(whole.rows[-1]["validation_loss"], rel=1e-11)
