"""The timeline of a pipeline: its idle time follows the formula, and each slot follows its predecessors."""

import pytest

from regroup.service.planner.formulas import bubble_share, in_flight
from regroup.service.planner.pipeline_timeline import timeline


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (4, 4), (4, 16), (8, 32), (3, 2)])
def test_the_bubble_equals_the_formula(schedule: str, stages: int, micro_batches: int) -> None:
    slots = timeline(stages, micro_batches, schedule, 1.0, 2.0)  # type: ignore[arg-type]
    whole_s = max(slot.end_s for slot in slots)
    busy_s = 3.0 * micro_batches
    assert 1 - busy_s / whole_s == pytest.approx(bubble_share(stages, micro_batches))
    assert len(slots) == 2 * stages * micro_batches


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_timeline_retains_as_many_micro_batches_as_the_memory_model(schedule: str) -> None:
    slots = timeline(4, 16, schedule, 1.0, 2.0)  # type: ignore[arg-type]
    for stage in range(4):
        events = sorted(
            (slot.start_s if slot.kind == "forward" else slot.end_s, -1 if slot.kind == "backward" else 1)
            for slot in slots
            if slot.stage == stage
        )
        held = most = 0
        for _, change in events:
            held += change
            most = max(most, held)
        assert most == in_flight(4, stage, 16, schedule)  # type: ignore[arg-type]


def test_a_stage_waits_for_its_neighbour() -> None:
    ends = {(slot.stage, slot.micro_batch, slot.kind): slot for slot in timeline(4, 8, "1f1b", 1.0, 2.0)}
    for (stage, number, kind), slot in ends.items():
        if kind == "forward" and stage:
            assert slot.start_s >= ends[(stage - 1, number, "forward")].end_s
        if kind == "backward" and stage < 3:
            assert slot.start_s >= ends[(stage + 1, number, "backward")].end_s
