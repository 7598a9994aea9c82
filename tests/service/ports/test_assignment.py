"""The records of a job's nodes survive a round trip through JSON."""

import json

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.domain.topology import Level
from regroup.service.policy.placement.demand import AxisCost, PlacementChoice, RejectedPlacement
from regroup.service.ports.assignment import Drain, JobAssignment, NodeAssignment, PlannedChange, Resize, SizeChange

NODES = (
    NodeAssignment("n1", "local-1", "10.0.0.1", 2, (0, 1), {"r1": 2}, ("rack-1", "local-1"), (0, 2)),
    NodeAssignment("n2", "local-2", "10.0.0.2", 2, reservations={"r2": 1, "r2-2": 1}),
)
SMALL, LARGE = Layout(dp_shard=2), Layout(dp_shard=4, micro_batch=1)
LEAVING = PlannedChange({"n1": "local-1"}, "node local-1 is drained: disks", 100.0, 160.0)
RESIZED = PlannedChange({}, "on request", 100.0, None, reason=Reason.RESIZED, sizes=SizeChange(SMALL, LARGE))
CHOICE = PlacementChoice(
    "rack r1", 0.1, (AxisCost("dp_shard", 2, 1e9, Level.RACK, 0.1),), 3, (RejectedPlacement("rack r2", "it is full"),)
)


@pytest.mark.parametrize(
    "assignment",
    [
        JobAssignment(SMALL, 0, choice=CHOICE),
        JobAssignment(LARGE, 3, NODES, is_user_size=True),
        JobAssignment(SMALL, 1, NODES, Drain(LEAVING, {"n2": "local-2"}, NODES[:1])),
        JobAssignment(LARGE, 1, NODES, Resize(RESIZED, ("r2", "a2"), SMALL, NODES[:1])),
    ],
)
def test_an_assignment_survives_json(assignment: JobAssignment) -> None:
    assert JobAssignment.from_json(json.loads(json.dumps(assignment.to_json()))) == assignment


def test_a_reader_ignores_fields_of_a_newer_version() -> None:
    data = {**NODES[0].to_json(), "cooling": "water"}
    assert NodeAssignment.from_json(data) == NODES[0]


def test_the_evidence_of_a_resize_names_both_layouts() -> None:
    assert RESIZED.evidence["before"] == SMALL.to_json() and RESIZED.evidence["after"]["micro_batch"] == 1
    assert LEAVING.evidence == {"nodes": ["local-1"], "noticed_s": 100.0, "deadline_s": 160.0}
