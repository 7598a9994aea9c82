"""Scenarios: nodes that are added or leave, other quotas, and jobs that are added."""

from dataclasses import replace

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.domain.topology import DEFAULT_LABELS, Level
from regroup.service.operations.capacity.scenario import (
    AddedJob,
    WhatIfRequest,
    change_nodes,
    change_quotas,
    job_to_add,
)
from regroup.service.policy.scheduling.entries import Priority
from regroup.service.policy.scheduling.quota import Quota
from tests.support.inputs.queue_inputs import node

NODES = [
    replace(node(name, devices, free=0), labels={DEFAULT_LABELS[Level.RACK]: rack})
    for name, devices, rack in (("a", 8, "r1"), ("b", 8, "r1"), ("c", 4, "r2"))
]


def request(**fields: object) -> WhatIfRequest:
    return WhatIfRequest.model_validate(fields)


def test_without_changes_the_nodes_are_those_of_now() -> None:
    found = change_nodes([*NODES, replace(node("head"), is_control=True)], request())
    assert (found.nodes, found.leaving) == (NODES, [])


@pytest.mark.parametrize(("like", "devices"), [(None, 8), ("c", 4)])
def test_added_nodes_are_free_and_like_others(like: str | None, devices: int) -> None:
    found = change_nodes(NODES, request(add_nodes={"count": 2, "like": like}))
    added = found.nodes[len(NODES) :]
    assert [each.name for each in added] == ["added-1", "added-2"] and len({each.id for each in added}) == 2
    assert {(each.gpus, each.free_gpus, each.closed_reason) for each in added} == {(devices, devices, "")}


def test_nodes_leave_by_name_or_by_domain_once() -> None:
    assert change_nodes(NODES, request(drain=["rack:r1", "a"])).leaving == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"drain": ["a", "rack:r9"]}, "drain.1"),
        ({"drain": ["z"]}, "drain.0"),
        ({"add_nodes": {"count": 1, "like": "z"}}, "add_nodes.like"),
    ],
)
def test_unknown_names_are_refused(fields: dict[str, object], path: str) -> None:
    with pytest.raises(SpecError) as error:
        change_nodes(NODES, request(**fields))
    assert [issue.path for issue in error.value.issues] == [path]


def test_an_empty_cluster_has_no_type_to_add() -> None:
    with pytest.raises(SpecError, match="no node whose type"):
        change_nodes([], request(add_nodes={"count": 1}))


def test_given_settings_of_quotas_change_and_others_stay() -> None:
    quotas = {"vision": Quota(guaranteed=4, limit=8, weight=2.0)}
    changed = change_quotas(quotas, request(quotas={"vision": {"limit": None}, "new": {"guaranteed": 2}}))
    assert changed["vision"] == Quota(guaranteed=4, limit=None, weight=2.0)
    assert changed["new"].guaranteed == 2 and quotas["vision"].limit == 8
    assert change_quotas(quotas, request(quotas={"vision": {"weight": None}})) == quotas


def test_an_added_job_asks_for_its_devices() -> None:
    job = job_to_add(AddedJob(name="big", project="vision", ranks=16, duration_s=60.0, priority="high"))
    assert (job.job_id, job.project, job.priority) == ("added:big", "vision", Priority.high)
    assert [size.ranks for size in job.sizes] == [16] and job.max_duration_s == 60.0
