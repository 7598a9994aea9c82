"""Compiled blocks compute the same, in pipelines too, and come back bitwise."""

import signal
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed, fault

pytestmark = pytest.mark.compiler
LAYOUTS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "ddp": ("ddp", {"dp_replicate": 2}, {}),
    "fsdp": ("fsdp", {"dp_shard": 2}, {}),
    "pp": ("fsdp", {"pp": 2}, {"schedule": "1f1b"}),
}


@pytest.fixture
def divisible(config: RankConfig) -> RankConfig:
    return changed(config, model={"layers": 2, "heads": 4, "kv_heads": 2, "vocab_size": 264})


def run(agent: Any, config: RankConfig, name: str, memory: str, **options: Any) -> Any:
    return agent.spread(config, LAYOUTS[name], memory, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsdp", "ddp", "pp"])
def test_it_computes_what_is_not_compiled(agent: Any, divisible: RankConfig, name: str) -> None:
    plain = run(agent, divisible, name, f"plain-{name}")
    divisible = changed(divisible, training={"compile": "default"})
    compiled = run(agent, divisible, name, f"compiled-{name}")
    assert set(compiled.codes) == {0}, compiled.errors
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert compiled.result["samples"] == plain.result["samples"]


@pytest.mark.slow
def test_a_killed_rank_costs_no_step_and_no_bit(agent: Any, divisible: RankConfig) -> None:
    divisible = changed(divisible, training={"compile": "default"})
    whole = run(agent, divisible, "fsdp", "compiled-whole")
    divisible = changed(divisible, faults=[fault(1, 3, "sigkill", "backward")])
    faulty = run(agent, divisible, "fsdp", "compiled-faulty", show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    state = {"source": "memory", "step": 2, "generation": 1}
    after = run(agent, divisible, "fsdp", "compiled-faulty", generation=2, restore=state, faults_fired=[0])
    assert after.result == whole.result


@pytest.mark.slow
def test_within_a_share_of_memory_less_is_kept(agent: Any, config: RankConfig) -> None:
    found = agent.run(config, 1, "kept", entry="compiled_loop:kept").result
    assert found["part"] < 0.6 * found["whole"], found
    assert found["difference"] < 1e-4, found
