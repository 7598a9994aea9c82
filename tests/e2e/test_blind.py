"""Each detector is needed: with it switched off, the scenario that it is there for does not hold."""

from pathlib import Path

import pytest
from house.chaos_command import chaos

from regroup.service.detectors import Detector

pytestmark = pytest.mark.slow

NEEDED_BY = {
    # A rank's death its peers notice as well; that of the store nobody does.
    Detector.EXIT: ("store-killed", {"I7"}),
    Detector.EXCEPTION: ("user-error", {"I7"}),
    Detector.SILENCE: ("node-frozen", {"I7"}),
    Detector.HANG: ("rank-stopped", {"I7"}),
    Detector.STRAGGLER: ("slow-rank", {"I6"}),
    Detector.NON_FINITE: ("loss-not-finite", {"I2", "I7"}),
    Detector.LOSS_SPIKE: ("loss-spiked", {"I2", "I7"}),
    Detector.REPLICAS: ("parameter-flipped", {"I2", "I7"}),
}
"""Detector → the scenario that needs it, and invariants that are broken without."""


def test_every_detector_is_needed_by_a_scenario() -> None:
    assert set(NEEDED_BY) == set(Detector)


@pytest.mark.parametrize("detector", sorted(Detector))
def test_without_it_its_scenario_does_not_hold(detector: Detector, tmp_path: Path, no_leaks: None) -> None:
    scenario, broken = NEEDED_BY[detector]
    code, report = chaos(tmp_path, "run", scenario, "--blind-to", detector.value)
    (outcome,) = report["scenarios"]
    assert code == 1
    assert broken <= {problem.partition(" ")[0].rstrip(":") for problem in outcome["problems"]}, outcome["problems"]
