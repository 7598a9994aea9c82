"""Each detector is necessary: if it is disabled, its scenario does not hold."""

from pathlib import Path

import pytest

from regroup.service.domain.detectors import Detector
from tests.support.jobs.chaos_command import chaos

pytestmark = pytest.mark.slow


def test_without_a_detector_its_scenario_does_not_hold(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "detectors")
    assert {each["detector"]: each["problems"] for each in report["detectors"] if not each["is_needed"]} == {}
    assert code == 0
    assert {each["detector"] for each in report["detectors"]} == set(Detector)
    assert all(each["disabled_detectors"] == [each["detector"]] and not each["passed"] for each in report["detectors"])
