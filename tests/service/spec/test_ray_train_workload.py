"""Ray Train workloads: scripts whose ranks get the storage URI of the program's checkpoints."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.contract.rank_config import ScriptConfig

WORKLOAD = {"kind": "ray_train", "entrypoint": "/train.py"}


def payload(workload: Any) -> JobConfig:
    node = {"node_id": "a", "name": "a", "address": "10.0.0.1", "ranks": 1}
    spec = parse_spec({"name": "x", "workload": workload, "preload": ["mine"]})
    return JobConfig.from_json({
        "job_id": "j", "spec": spec.model_dump(mode="json"), "nodes": [node], "layout": {"dp_shard": 1},
        "storage_uri": "file:///s/jobs/j", "datasets_uri": "file:///s/datasets",
    })  # fmt: skip


def test_the_ranks_run_the_program_with_ray_train_imported() -> None:
    config_of_job = payload(WORKLOAD)
    assert config_of_job.script is not None and config_of_job.data_sources is None
    join = config_of_job.join_message()
    assert join.entry == "script:/train.py"
    assert join.config.script == ScriptConfig("ray_train", storage_uri="file:///s/jobs/j/ray-train")
    (config,) = config_of_job.agent_configs().values()
    assert config.preload[-2:] == ("regroup.workers.rank.ray_train.fit", "mine")
    script = payload({**WORKLOAD, "kind": "script"})
    assert script.join_message().config.script == ScriptConfig()
    assert not any("ray_train" in module for config in script.agent_configs().values() for module in config.preload)


@pytest.mark.parametrize(
    ("fields", "path"),
    [({"seed": 1}, "seed"), ({"checkpoint": {"keep_last": 1}}, "checkpoint"), ({"args": {"a": 1}}, "args")],
)
def test_fields_that_the_program_decides_itself_are_refused(fields: Any, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec({"name": "x", "workload": WORKLOAD, **fields})
    assert [issue.path for issue in refused.value.issues] == [path]
