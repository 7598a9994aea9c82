"""Initial values do not depend on the layout."""

from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig
from tests.support.inputs.rank_configs import changed

ENTRY = "plain_loop:initial_values"


@pytest.mark.parametrize(
    ("kind", "world_size", "checkpointing"),
    [("fsdp", 2, "none"), ("fsdp", 3, "full"), ("fsdp", 4, "none"), ("ddp", 2, "none")],
)
def test_initial_values_do_not_know_the_layout(
    agent: Any, config: RankConfig, kind: str, world_size: int, checkpointing: str
) -> None:
    alone = agent.run(config, 1, "initial", entry=ENTRY).result
    config = changed(config, parallel={"data_parallel": kind})
    config = changed(config, training={"activation_checkpointing": checkpointing})
    spread = agent.run(config, world_size, "initial", entry=ENTRY).result
    assert spread == alone
    assert next(iter(alone)) == "embed.weight"
    assert "layers.1.ffn.down.weight" in alone
    matrices = [digest for name, digest in alone.items() if "norm" not in name]
    assert len(set(matrices)) == len(matrices)


def test_another_seed_gives_other_values(agent: Any, config: RankConfig) -> None:
    one = agent.run(config, 1, "initial", entry=ENTRY).result
    other = agent.run(changed(config, seed=8), 1, "initial", entry=ENTRY).result
    assert one["head.weight"] != other["head.weight"]
    assert one["norm.weight"] == other["norm.weight"] == one["layers.0.ffn_norm.weight"]
