from typing import Any

from regroup.service.domain.topology import Level
from regroup.service.operations.placement_explanation import explain_placement
from regroup.service.policy.placement.communication_cost import AxisCost
from regroup.service.policy.placement.demand import PlacementChoice, RejectedPlacement
from regroup.service.spec.job import JobSpec, parse_spec

AXIS = AxisCost("dp_shard", 4, 7.5e9, Level.NODE, 5.01)
CHOICE = PlacementChoice(
    "node local-1",
    5.01,
    (AXIS,),
    1,
    (RejectedPlacement("2 nodes in the cluster", "23% more communication, 2 more free devices on fragmented nodes"),),
)


def spec(workload: dict[str, Any]) -> JobSpec:
    training = {"global_batch": 8, "micro_batch": 2, "sequence": 16, "steps": 10}
    parts = {"training": training} if workload["kind"] == "builtin" else {}
    return parse_spec({"name": "a", "workload": workload, "layout": {"dp": 4}, **parts})


def test_the_communication_of_a_script_is_unknown() -> None:
    found = explain_placement(CHOICE, spec({"kind": "script", "entrypoint": "/t.py"}), "job_probe")
    assert (found.inside, found.communication_s, found.axes) == ("node local-1", None, ())
    assert [each.why for each in found.rejected] == ["more communication, 2 more free devices on fragmented nodes"]


def test_the_communication_of_a_known_model_is_shown_with_its_basis() -> None:
    builtin = spec({"kind": "builtin", "data": {"train": ["/data/*"]}})
    found = explain_placement(CHOICE, builtin, "job_probe")
    assert (found.communication_s, found.axes, found.probe_job_id) == (5.01, (AXIS,), "job_probe")
    assert found.rejected == CHOICE.rejected
    assert explain_placement(CHOICE, builtin, None).probe_job_id is None
