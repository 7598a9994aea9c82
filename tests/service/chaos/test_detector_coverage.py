"""Detector coverage: each detector has a scenario that needs it and lists the invariants that break without it."""

import pytest

from regroup.service.chaos.detector_coverage import DETECTOR_NEEDS, DetectorNeed
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.invariants import MEANINGS, Finding
from regroup.service.chaos.observation import Record
from regroup.service.chaos.report import Outcome
from regroup.service.chaos.scenarios import SCENARIOS
from regroup.service.domain.detectors import Detector


def outcome(*broken: str) -> Outcome:
    empty = Record(FaultPlan("x", 0, 9), {}, (), (), (), (), (), {}, {})
    found = (Finding(name, "", ("violated",) if name in broken else ()) for name in MEANINGS)
    return Outcome("1", "x", "", 0, tuple(found), empty)


def test_every_detector_is_needed_by_a_scenario() -> None:
    assert set(DETECTOR_NEEDS) == set(Detector)
    assert all(need.scenario in SCENARIOS and need.breaks <= set(MEANINGS) for need in DETECTOR_NEEDS.values())


@pytest.mark.parametrize(
    ("broken", "is_shown"), [((), False), (("I2",), False), (("I7",), False), (("I2", "I7"), True), (MEANINGS, True)]
)
def test_a_need_is_proven_if_all_expected_invariants_break(broken: tuple[str, ...], is_shown: bool) -> None:
    assert DetectorNeed("loss-spiked", frozenset({"I2", "I7"})).is_proven_by(outcome(*broken)) == is_shown
