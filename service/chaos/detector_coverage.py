"""The scenario that proves each detector: without the detector, the scenario must violate invariants. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.chaos.report import Outcome
from regroup.service.chaos.scenarios import Scenario, find_scenario
from regroup.service.domain.detectors import Detector


@dataclass(frozen=True)
class DetectorNeed:
    """A scenario that a detector is needed for."""

    name: str
    """Name of the scenario."""
    breaks: frozenset[str]
    """Invariants that are violated without the detector."""

    @property
    def scenario(self) -> Scenario:
        """Scenario that no other detector finds, or not in time."""
        found = find_scenario(self.name)
        assert found is not None, self.name
        return found

    def is_proven_by(self, outcome: Outcome) -> bool:
        """Return True if the scenario, run without the detector, violated the expected invariants."""
        return self.breaks <= {finding.invariant for finding in outcome.findings if not finding.passed}


DETECTOR_NEEDS: Mapping[Detector, DetectorNeed] = {
    # Peers also detect the death of a rank, but no process detects the death of the store.
    Detector.EXIT: DetectorNeed("store-killed", frozenset({"I7"})),
    Detector.EXCEPTION: DetectorNeed("user-error", frozenset({"I7"})),
    Detector.HEARTBEAT: DetectorNeed("node-frozen", frozenset({"I7"})),
    Detector.HANG: DetectorNeed("rank-stopped", frozenset({"I7"})),
    Detector.STRAGGLER: DetectorNeed("slow-rank", frozenset({"I6"})),
    Detector.NON_FINITE: DetectorNeed("loss-not-finite", frozenset({"I2", "I7"})),
    Detector.LOSS_SPIKE: DetectorNeed("loss-spiked", frozenset({"I2", "I7"})),
    Detector.REPLICA_MISMATCH: DetectorNeed("parameter-flipped", frozenset({"I2", "I7"})),
}
