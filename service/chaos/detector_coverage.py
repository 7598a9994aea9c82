"""Which scenario each detector is there for: with the detector off, it must not hold. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.chaos.report import Outcome
from regroup.service.chaos.scenarios import Scenario, find_scenario
from regroup.service.domain.detectors import Detector


@dataclass(frozen=True)
class DetectorNeed:
    """What a detector is needed for."""

    name: str
    """Of the scenario."""
    breaks: frozenset[str]
    """Invariants that are broken without it."""

    @property
    def scenario(self) -> Scenario:
        """That nobody else notices, or not in time."""
        found = find_scenario(self.name)
        assert found is not None, self.name
        return found

    def is_proven_by(self, outcome: Outcome) -> bool:
        """Whether the scenario, run without the detector, broke what it was to break."""
        return self.breaks <= {finding.invariant for finding in outcome.findings if not finding.passed}


DETECTOR_NEEDS: Mapping[Detector, DetectorNeed] = {
    # A rank's death its peers notice as well; that of the store nobody does.
    Detector.EXIT: DetectorNeed("store-killed", frozenset({"I7"})),
    Detector.EXCEPTION: DetectorNeed("user-error", frozenset({"I7"})),
    Detector.HEARTBEAT: DetectorNeed("node-frozen", frozenset({"I7"})),
    Detector.HANG: DetectorNeed("rank-stopped", frozenset({"I7"})),
    Detector.STRAGGLER: DetectorNeed("slow-rank", frozenset({"I6"})),
    Detector.NON_FINITE: DetectorNeed("loss-not-finite", frozenset({"I2", "I7"})),
    Detector.LOSS_SPIKE: DetectorNeed("loss-spiked", frozenset({"I2", "I7"})),
    Detector.REPLICA_MISMATCH: DetectorNeed("parameter-flipped", frozenset({"I2", "I7"})),
}
