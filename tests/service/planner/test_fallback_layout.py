"""Fallback layouts after the loss of nodes."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.fallback_layout import choose_fallback_layout
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.inputs.auto_layout_specs import SMALL, auto_json, cpu_nodes


def spec(dp: object = 1, model: dict[str, object] = SMALL, **layout: object) -> JobSpec:
    return parse_spec(auto_json({"dp": dp, **layout}, model, micro_batch=4))


def test_a_group_that_fits_no_node_is_split_differently() -> None:
    assert choose_fallback_layout(spec(tp=2), 2, [], cpu_nodes(1, 1)) in (Layout(dp_shard=2), Layout(pp=2))
    assert choose_fallback_layout(spec(tp=2), 2, [("n1", 1)], [*cpu_nodes(1, 1)][1:]) is None, (
        "one of the remaining nodes is not in the cluster"
    )


def test_the_number_of_ranks_stays_between_the_minimum_and_the_old_size() -> None:
    assert choose_fallback_layout(spec(tp=2), 2, [], cpu_nodes(1)) is None
    many = cpu_nodes(1, 1, 1, 1, 1, 1)
    found = choose_fallback_layout(spec({"min": 1, "target": 2, "max": 3}, tp=2), 4, [], many)
    assert found is not None and found.world_size == 4 and found.tp == 1
    found = choose_fallback_layout(spec({"min": 1, "target": 2, "max": 3}, tp=2), 4, [], many[:3])
    assert found is None or found.world_size in (2, 3)


def test_current_slots_of_the_job_count_as_capacity() -> None:
    held, free = cpu_nodes(1, 1)
    found = choose_fallback_layout(spec(tp=2), 2, [(held.id, 1)], [held, free])
    assert found is not None and found.world_size == 2 and found.tp == 1


def test_a_script_has_no_fallback_layout() -> None:
    workload = {"kind": "script", "entrypoint": "train.py"}
    theirs = parse_spec({"name": "theirs", "workload": workload, "layout": {"dp": 2}})
    assert choose_fallback_layout(theirs, 2, [], cpu_nodes(1, 1)) is None
