"""Another split where nodes were lost."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.fallback_layout import resplit
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.auto_layout_specs import SMALL, auto_json, cpu_nodes


def spec(dp: object = 1, model: dict[str, object] = SMALL, **layout: object) -> JobSpec:
    return parse_spec(auto_json({"dp": dp, **layout}, model, micro_batch=4))


def test_a_group_that_no_node_holds_any_more_is_taken_apart() -> None:
    assert resplit(spec(tp=2), 2, [], cpu_nodes(1, 1)) in (Layout(dp_shard=2), Layout(pp=2))
    assert resplit(spec(tp=2), 2, [("n1", 1)], [*cpu_nodes(1, 1)][1:]) is None, "of what is left one is not there"


def test_no_fewer_ranks_than_the_spec_allows_and_no_more_than_there_were() -> None:
    assert resplit(spec(tp=2), 2, [], cpu_nodes(1)) is None
    many = cpu_nodes(1, 1, 1, 1, 1, 1)
    found = resplit(spec({"min": 1, "target": 2, "max": 3}, tp=2), 4, [], many)
    assert found is not None and found.world_size == 4 and found.tp == 1
    found = resplit(spec({"min": 1, "target": 2, "max": 3}, tp=2), 4, [], many[:3])
    assert found is None or found.world_size in (2, 3)


def test_what_ranks_hold_already_counts() -> None:
    held, free = cpu_nodes(1, 1)
    found = resplit(spec(tp=2), 2, [(held.id, 1)], [held, free])
    assert found is not None and found.world_size == 2 and found.tp == 1


def test_what_others_have_written_is_not_split_otherwise() -> None:
    workload = {"kind": "script", "entrypoint": "train.py"}
    theirs = parse_spec({"name": "theirs", "workload": workload, "layout": {"dp": 2}})
    assert resplit(theirs, 2, [], cpu_nodes(1, 1)) is None
