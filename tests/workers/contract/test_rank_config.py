"""Rank configurations survive the way to a rank unchanged."""

import json
from typing import Any

import pytest

from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.job_state.rank_config import rank_config
from regroup.workers.contract.codec import build, plain
from regroup.workers.contract.messages import Join, Restore, decode, encode
from regroup.workers.contract.rank_config import (
    FaultConfig,
    FaultPoint,
    LossSpikeAction,
    LossSpikeConfig,
    NonFiniteAction,
    NonFiniteConfig,
    OptimizerConfig,
    RankConfig,
    RepeatedSpike,
    ScheduleConfig,
    ScriptConfig,
    SnapshotConfig,
    TrainingConfig,
    WarmupConfig,
)
from regroup.workers.contract.rank_env import variables

BUILTIN = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}, "model": {"dim": 64, "heads": 2}}
TRAINING = {"global_batch": 16, "micro_batch": 2, "sequence": 8, "steps": 4}


def job(**fields: Any) -> RankConfig:
    """Return the configuration of a job with these fields."""
    return rank_config(parse_spec({"name": "j", "workload": BUILTIN, "training": TRAINING, **fields}))


def test_every_field_survives_encoding() -> None:
    faults = (
        FaultConfig(FaultPoint(3, "backward", node=1), "sleep", duration_s=1.5),
        FaultConfig(FaultPoint(2, rank=0)),
    )
    config = RankConfig(
        training=TrainingConfig(steps=4, global_batch=16, optimizer=OptimizerConfig("sgd"), schedule=ScheduleConfig()),
        model={"family": "transformer", "dim": 64},
        args={"nested": [1, {"a": None}]},
        script=ScriptConfig(args=("--a",), cwd="/code"),
        snapshot=SnapshotConfig(every_steps=3),
        non_finite=NonFiniteConfig(NonFiniteAction.SKIP, max_skips=2),
        loss_spike=LossSpikeConfig(LossSpikeAction.ROLLBACK, (RepeatedSpike(7, "loss", 2.5),)),
        faults=faults,
    )
    join = Join("j", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "h", 1, Restore("none"), "script:x", config)
    assert decode(encode(join)) == join
    warmup = WarmupConfig(config, is_tensor_parallel=True)
    assert build(WarmupConfig, json.loads(json.dumps(plain(warmup)))) == warmup


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"snapshot": {"every_steps": 2}, "checkpoint": {"every": "5m"}, "determinism": "strict"},
        {"layout": {"dp": {"min": 1, "target": 2, "max": 4}, "data_parallel": "ddp", "bucket_mib": 1}},
        {"faults": [{"at": {"rank": 0, "step": 2}, "do": "slow", "factor": 2, "steps": 3}]},
        {"recovery": {"non_finite": "skip", "loss_spike": "rollback"}},
    ],
)
def test_a_spec_gives_a_configuration_that_survives_encoding(fields: dict[str, Any]) -> None:
    config = job(**fields)
    assert build(RankConfig, json.loads(json.dumps(plain(config)))) == config


def test_the_role_of_a_spec_reaches_the_variables_of_a_rank() -> None:
    workload = {"kind": "script", "entrypoint": "/x.py", "role": "trainer"}
    config = rank_config(parse_spec({"name": "j", "workload": workload}))
    join = Join("j", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "h", 1, Restore("none"), "script:/x.py", config)
    assert variables(join)["ROLE_NAME"] == "trainer"


def test_the_spec_decides_every_value() -> None:
    config = job(checkpoint={"every": "5m"}, determinism="strict", layout={"dp": 2, "data_parallel": "ddp"}, seed=3)
    assert (config.training.steps, config.training.sequence, config.training.dp_target) == (4, 8, 2)
    assert (config.model["dim"], config.model["family"]) == (64, "transformer")
    assert (config.checkpoint.every_s, config.is_deterministic, config.seed) == (300.0, True, 3)
    assert config.parallel.data_parallel == "ddp"
    assert config.verify_replicas
