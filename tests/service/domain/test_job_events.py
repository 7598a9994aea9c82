"""Each event class survives the codec; data that does not match a class is refused."""

import json
from typing import Any, get_args

import pytest

from regroup.service.domain.job_events import (
    EVENT_CLASSES,
    CheckpointRemoved,
    CheckpointWritten,
    EventType,
    GenerationStarted,
    IncidentRevised,
    JobEvent,
    JobHeld,
    JobRelocated,
    MalformedEventError,
    MetricsReported,
    MirrorChanged,
    NoteRecorded,
    PhaseProgressed,
    RankPlace,
    RecoveryAction,
    ResultRecorded,
    ScriptResumed,
    StateChanged,
    StragglerRank,
    StragglersChanged,
    decode,
    encode,
    type_of,
)
from regroup.service.domain.states import JobState, Reason
from regroup.workers.contract.messages import StepRow

LAYOUT = {"dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "pp": 1}
PLACES = (RankPlace(0, "n0", "alpha", "10.0.0.1", 0, 0), RankPlace(1, "n1", "beta", "10.0.0.2", 0, 3))
ERROR = {"kind": "ValueError", "message": "bad", "traceback": "Traceback …"}
EVENTS: list[JobEvent] = [
    StateChanged(JobState.FAILED, Reason.USER_ERROR, "rank 2 raised", ERROR),
    StateChanged(JobState.RUNNING, Reason.FIRST_STEP),
    PhaseProgressed("data", 0.75, "reading sources"),
    PhaseProgressed("agents"),
    StepRow(1, 2, 1002.0, 0.5, 2.0, 64, 4, 2**63 + 2, 1e-3, None, 2.5, 0.01, {"mfu": 0.4}),
    StepRow(1, 2, 1002.0, None, None, None, None, None, 1e-3, None),
    MetricsReported(4, {"loss": 0.5, "accuracy": 0.9}),
    NoteRecorded("condition", {"node": "local-1", "what": "device", "message": "GPU 0 is lost"}),
    NoteRecorded("stuck", {"node": "local-1", "pids": [7], "data": {"nested": True}}),
    GenerationStarted(2, LAYOUT, 2, PLACES, 4, {"kind": "memory", "step": 4, "fetch": []}, "rank_exit"),
    ScriptResumed(7, has_step_count=False),
    IncidentRevised(
        id="i1",
        cause="rank 0 killed by signal 9",
        reason=Reason.RANK_EXIT,
        revision=2,
        rank=0,
        node_id="n0",
        evidence={"kind": "exit", "out_of_memory": True},
        generation=1,
        next_generation=2,
        recovery_action=RecoveryAction.RESPAWN,
        at_step=10,
        steps_lost=0,
        times={"fault_s": 1011.0, "seen_s": 1011.1},
        durations={"detect": 0.1},
        evidence_bytes=100,
        evidence_missing={"gamma": "the node was lost"},
    ),
    IncidentRevised(id="i2", cause="rank 3 is silent", reason=Reason.HANG),
    JobRelocated(({"node_id": "n1", "ranks": 1},), {"n0": "alpha"}, 1, LAYOUT),
    CheckpointWritten(20, 2, "file:///s", 4096, 2, 0.5, 2.5, 1024, 0.25),
    CheckpointRemoved(10, 1),
    JobHeld(2000.0, Reason.USER_ERROR, "bad", ERROR, {"0": {"node": "a", "pid": 1, "place": "step 1", "text": "…"}}),
    StragglersChanged((StragglerRank(2, "node-2", 0.3, 0.1), StragglerRank(1, "node-1", 0.4, 0.1, is_crowded=True))),
    StragglersChanged(()),
    MirrorChanged(None, 0, "n2: short of memory"),
    ResultRecorded(4, {"parameters": "ab12", "data": 1}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_json(event: JobEvent) -> None:
    stored = json.loads(json.dumps(encode(event)))
    assert decode(type_of(event).value, stored) == event


def test_each_class_has_a_type_and_a_round_trip() -> None:
    assert set(EVENT_CLASSES.values()) == set(get_args(JobEvent)) == {type(event) for event in EVENTS}
    assert set(EVENT_CLASSES) == {kind.value for kind in EventType}


def test_open_events_are_stored_flat() -> None:
    assert encode(NoteRecorded("hang", {"rank": 1})) == {"kind": "hang", "rank": 1}
    assert encode(ResultRecorded(4, {"parameters": "ab12"})) == {"step": 4, "parameters": "ab12"}


def test_fields_of_a_newer_supervisor_are_ignored() -> None:
    assert decode("checkpoint_removed", {"step": 1, "generation": 2, "why": "new"}) == CheckpointRemoved(1, 2)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("weather", {}, "unknown event type 'weather'; expected one of state, phase"),
        ("state", {"state": "SLEEPING", "reason": "tired"}, "'SLEEPING' is not a valid JobState"),
        ("state", {"state": "RUNNING"}, "missing 1 required positional argument: 'reason'"),
        ("checkpoint_removed", {"step": "x", "generation": 1}, "step='x' is not of type"),
        ("checkpoint_removed", {"step": True, "generation": 1}, "step=True is not of type"),
        ("report", {"step": 1, "metrics": [1.0]}, "malformed 'report' event"),
        ("stragglers", {"ranks": [7]}, "malformed 'stragglers' event"),
        ("note", {"message": "no kind"}, "missing 1 required positional argument: 'kind'"),
    ],
)
def test_data_that_does_not_match_its_class_is_refused(kind: str, data: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedEventError, match=message):
        decode(kind, data)
