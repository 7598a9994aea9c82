"""Messages in the generation monitor."""

import pytest

from regroup.service.domain.detectors import Detector
from regroup.service.domain.job_events import RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.supervisor.job_state.generation_monitor import GenerationMonitor
from regroup.service.supervisor.job_state.generations import Generation
from regroup.workers.contract.messages import Exited, Failed, Joined
from regroup.workers.contract.rank_error import ErrorClass, RankError

ENDED = Exited(0, 1, -9, 0.0)
RAISED = Failed(0, 1, RankError(ErrorClass.USER, "ValueError", "no", "", 1, "forward", 0.0))


def monitor(*disable_detectors: Detector, source: RestoreKind = RestoreKind.NONE) -> GenerationMonitor:
    place = RankPlace(0, "n", "n", "10.0.0.1", 0, 0)
    return GenerationMonitor(
        Generation(1, Layout(dp_shard=1), RankMap.of((place,)), RestoreSource(source), "start"),
        disable_detectors=disable_detectors,
    )


@pytest.mark.parametrize(("message", "detector"), [(ENDED, Detector.EXIT), (RAISED, Detector.EXCEPTION)])
def test_a_disabled_detector_ignores_its_messages(message: Exited | Failed, detector: Detector) -> None:
    enabled, disabled = monitor(), monitor(detector)
    for each in (enabled, disabled):
        each.receive("n", Joined(0, 1, 1.0))
        each.receive("n", message)
    assert enabled.is_broken and not disabled.is_broken
    assert enabled.joined == disabled.joined == {0: 1.0}


@pytest.mark.parametrize(
    ("source", "kind", "damage"),
    [
        (RestoreKind.CHECKPOINT, "CheckpointDamagedError", "/s/step-4.gen-1 is damaged"),
        (RestoreKind.MEMORY, "CheckpointDamagedError", ""),
        (RestoreKind.CHECKPOINT, "StateLostError", ""),
    ],
)
def test_only_damage_speaks_against_a_checkpoint(source: RestoreKind, kind: str, damage: str) -> None:
    found = monitor(source=source)
    error = RankError(ErrorClass.IO, kind, "/s/step-4.gen-1 is damaged", "", 4, "restore", 0.0)
    found.receive("n", Failed(0, 1, error))
    assert found.checkpoint_damage == damage
