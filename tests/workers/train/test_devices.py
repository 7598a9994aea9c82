"""The trainer on a device: the first step after the fork, recovery, and several ranks on one device."""

import signal
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed, fault

KILLED_AT = 3


@pytest.fixture
def strict(config: RankConfig) -> RankConfig:
    """A small job whose operations are bitwise repeatable on every device."""
    return changed(config, is_deterministic=True, parallel={"data_parallel": "fsdp"})


@pytest.fixture(autouse=True)
def repeatable_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_killed_rank_costs_no_step_and_no_bit(agent: Any, strict: RankConfig, device: str, precision: str) -> None:
    strict = changed(strict, training={"precision": precision})
    whole = agent.run(strict, 1, "whole", device=device)
    assert whole.codes == [0], whole.errors
    faulty = changed(strict, faults=[fault(0, KILLED_AT, "sigkill", "backward")])
    killed = agent.run(faulty, 1, "killed", device=device)
    assert killed.codes == [-signal.SIGKILL]
    state = {"source": "memory", "step": KILLED_AT - 1, "generation": 1}
    after = agent.run(faulty, 1, "killed", device=device, generation=2, restore=state, faults_fired=[0])
    assert after.codes == [0], after.errors
    assert after.result == whole.result
    assert after.losses == whole.losses[KILLED_AT - 1 :]


@pytest.mark.parametrize("data_parallel", ["fsdp", "zero1"])
def test_one_rank_computes_the_same_as_the_cpu(agent: Any, config: RankConfig, device: str, data_parallel: str) -> None:
    config = changed(config, parallel={"data_parallel": data_parallel})
    on_cpu = agent.run(config, 1, "cpu")
    there = agent.run(config, 1, "there", device=device)
    assert there.codes == [0], there.errors
    assert there.losses == pytest.approx(on_cpu.losses, rel=1e-4)
    assert there.result["samples"] == on_cpu.result["samples"]


def test_two_ranks_share_a_device_over_gloo(agent: Any, config: RankConfig, device: str) -> None:
    """NCCL refuses two ranks on one device. Gloo copies the tensors of a device through the host."""
    config = changed(config, parallel={"data_parallel": "ddp"})
    on_cpu = agent.run(config, 2, "cpu")
    shared = agent.run(config, 2, "shared", device=device, backend="gloo")
    assert shared.codes == [0, 0], shared.errors
    assert shared.losses == pytest.approx(on_cpu.losses, rel=1e-4)


def test_recomputed_activations_change_no_bit(agent: Any, strict: RankConfig, device: str) -> None:
    whole = agent.run(strict, 1, "whole", device=device)
    recomputed = changed(strict, training={"activation_checkpointing": "full"})
    assert agent.run(recomputed, 1, "recomputed", device=device).result == whole.result
