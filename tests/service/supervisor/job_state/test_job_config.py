"""The configuration that the agents and ranks of a job receive."""

from typing import Any

import pytest

from regroup.service.domain.detectors import Detector
from regroup.service.domain.layout import Layout
from regroup.service.supervisor.job_state.job_config import JobConfig
from tests.support.inputs.sync_records import assigned

BUILTIN = {"workload": {"kind": "builtin", "data": {"train": ["/data"]}},
           "training": {"global_batch": 2, "micro_batch": 1, "sequence": 8, "steps": 2}}  # fmt: skip
SCRIPT = {"workload": {"kind": "script", "entrypoint": "/train.py"}}
RAY_TRAIN = {"workload": {"kind": "ray_train", "entrypoint": "/train.py"}}
FUNCTION = {"workload": {"kind": "function", "function": "mine:train"},
            "training": {"global_batch": 2, "micro_batch": 1, "steps": 2}}  # fmt: skip


def payload(spec: dict[str, Any], **more: Any) -> JobConfig:
    """Return the configuration of a job on one node."""
    return JobConfig.from_json(
        {
            "job_id": "job",
            "spec": {"name": "job", **spec},
            "nodes": [{"node_id": "n", "name": "n", "address": "127.0.0.1", "ranks": 1}],
            "layout": {},
            "storage_uri": "file:///storage",
            "datasets_uri": "file:///datasets",
            **more,
        }
    )


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (SCRIPT, {"torch"}),
        (FUNCTION, {"torch"}),
        (RAY_TRAIN, {"torch", "ray"}),
        (BUILTIN, {"torch", "numpy", "fsspec"}),
    ],
)
def test_an_own_environment_needs_the_packages_of_the_workload(spec: dict[str, Any], needs: set[str]) -> None:
    environment = {"base": "none", "requirements": ["torch==2.13.0"]}
    (config,) = payload({**spec, "environment": environment}).agent_configs().values()
    assert set(config.needs) == needs
    assert (config.requirements, config.base, config.interpreter) == (("torch==2.13.0",), "none", "")


def test_the_agent_gets_the_interpreter_of_the_spec() -> None:
    (config,) = payload({**SCRIPT, "environment": {"interpreter": "/opt/bin/python"}}).agent_configs().values()
    assert (config.interpreter, config.requirements) == ("/opt/bin/python", ())


def test_detectors_can_be_disabled() -> None:
    enabled, disabled = payload(BUILTIN), payload({**BUILTIN, "disable_detectors": list(Detector)})
    assert enabled.hang_policy is not None and disabled.hang_policy is None
    enabled_config, disabled_config = enabled.join_message().config, disabled.join_message().config
    assert (enabled_config.verify_replicas, disabled_config.verify_replicas) == (True, False)
    assert (enabled_config.loss_spike.action, disabled_config.loss_spike.action) == ("warn", "off")
    assert (enabled_config.non_finite.action, disabled_config.non_finite.action) == ("rollback", "ignore")


def places(*numbers: list[int]) -> list[tuple[int, str, int]]:
    nodes = [
        {"node_id": f"n{at}", "name": f"n{at}", "address": "", "ranks": 2, "numbers": local_numbers}
        for at, local_numbers in enumerate(numbers)
    ]
    job = payload(BUILTIN).with_nodes(assigned(nodes), Layout(dp_replicate=4))
    return [(place.rank, place.node_id, place.local_rank) for place in job.places]


def test_ranks_have_the_nodes_of_their_placement() -> None:
    assert places([0, 2], [1, 3]) == [(0, "n0", 0), (1, "n1", 0), (2, "n0", 1), (3, "n1", 1)]
    in_order = [(0, "n0", 0), (1, "n0", 1), (2, "n1", 0), (3, "n1", 1)]
    assert places([], []) == in_order
    assert places([0, 5], [1, 3]) == in_order, "rank numbers of another world size are ignored"


def test_agents_know_the_page_of_the_job() -> None:
    page = "https://regroup.example/console/jobs/job"
    (config,) = payload(SCRIPT, page_url=page).agent_configs().values()
    assert config.page_url == page
    assert JobConfig.from_json(payload(SCRIPT, page_url=page).to_json()).page_url == page
    (config,) = payload(SCRIPT).agent_configs().values()
    assert config.page_url == ""
