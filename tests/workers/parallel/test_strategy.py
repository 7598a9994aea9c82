"""Facts that follow from a strategy."""

from dataclasses import replace

import pytest

from regroup.workers.contract.rank_config import ParallelConfig, RankConfig, TrainingConfig
from regroup.workers.parallel.strategy import Strategy, strategy_of

PLAIN = Strategy("fsdp", "fp32", "none")


@pytest.mark.parametrize(
    ("kind", "is_sharded", "resharding"),
    [("ddp", False, True), ("zero1", False, True), ("zero2", True, False), ("fsdp", True, True)],
)
def test_zero2_keeps_what_it_gathered(kind: str, is_sharded: bool, resharding: bool) -> None:
    strategy = replace(PLAIN, data_parallel=kind)
    assert (strategy.is_sharded, strategy.resharding) == (is_sharded, resharding)
    assert replace(PLAIN, reshard_after_forward=2).resharding == 2


def test_only_halves_are_mixed_and_only_a_fraction_is_a_share() -> None:
    mixed = {name: replace(PLAIN, precision=name).is_mixed for name in ("fp16", "bf16", "fp32", "fp64")}
    assert mixed == {"fp16": True, "bf16": True, "fp32": False, "fp64": False}
    shares = [replace(PLAIN, activation_checkpointing=policy).kept_share for policy in ("full", 2, 0.5)]
    assert shares == [None, None, 0.5]


def test_it_is_read_from_the_configuration_of_a_rank() -> None:
    training = TrainingConfig(precision="bf16", activation_checkpointing="full", reduce="bf16", compile="default")
    config = RankConfig(training=training, parallel=ParallelConfig("ddp", bucket_mib=3, schedule="zbv"))
    found = strategy_of(config)
    assert (found.precision, found.activation_checkpointing, found.reduce, found.compile) == (
        "bf16",
        "full",
        "bf16",
        "default",
    )
    assert (found.data_parallel, found.bucket_mib, found.schedule) == ("ddp", 3, "zbv")
