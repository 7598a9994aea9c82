"""The records of a sync survive a round trip through JSON, and intents of several sources merge."""

import json

import pytest

from regroup.service.domain.job_events import encode
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.ports.assignment import NodeAssignment, PlannedChange
from regroup.service.ports.sync import (
    READY,
    EndRequest,
    Intents,
    PinnedCheckpoint,
    SaveStatus,
    SecretValues,
    SupervisorEvent,
    SupervisorStatus,
    SyncReply,
    SyncRequest,
    UnreadyNodes,
)
from regroup.workers.contract.messages import StepRow

NODE = NodeAssignment("n1", "local-1", "10.0.0.1", 2)
CHANGE = PlannedChange({}, "suspended", 5.0, None, is_requeue=True, reason=Reason.SUSPENDED)
FULL = Intents(
    cancel=True,
    end=EndRequest(Reason.MAX_DURATION, "too long"),
    release=True,
    pins=(PinnedCheckpoint(4, 1),),
    nodes=(NODE,),
    layout=Layout(dp_shard=2),
    change=CHANGE,
    spares=(NODE,),
    no_spare="all nodes are busy",
    secrets=SecretValues("v1", {"hf-token": "hunter2"}),
)


@pytest.mark.parametrize("intents", [Intents(), FULL])
def test_a_request_survives_json(intents: Intents) -> None:
    request = SyncRequest(intents, 7, "boot", 2.5)
    assert SyncRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


@pytest.mark.parametrize(
    "status",
    [
        SupervisorStatus(),
        SupervisorStatus(
            state="RUNNING",
            phase="training",
            step=3,
            generation=1,
            ranks={"0": [3, "forward"]},
            lost=("n1",),
            nodes=("n1", "n2"),
            ranks_by_node={"n1": 2},
            layout=Layout(tp=2),
            former=("n3",),
            unready=UnreadyNodes(("n1", "n4"), "no such interpreter"),
            incident={"reason": "drained"},
            save=SaveStatus(40, 1, "writing checkpoint", 3, 9, 2.5),
            spares={"n5": READY},
            secrets_version="v1",
        ),
    ],
)
def test_a_reply_survives_json(status: SupervisorStatus) -> None:
    reply = SyncReply("boot", (SupervisorEvent(1, "state:1", "state", 1, 5.0, {"state": "RUNNING"}),), status)
    assert SyncReply.from_json(json.loads(json.dumps(reply.to_json()))) == reply


def test_steps_travel_as_columns_next_to_the_other_events() -> None:
    row = StepRow(1, 2, 5.0, 0.5, 2.0, None, None, 7, 1e-3, None, extra={"mfu": 0.5})
    step = SupervisorEvent(1, "step:1:2", "step", 1, 5.0, encode(row))
    note = SupervisorEvent(2, "note:1", "note", 1, 6.0, {"kind": "x"})
    reply = SyncReply.of("boot", [step, note], SupervisorStatus())
    received = SyncReply.from_json(json.loads(json.dumps(reply.to_json())))
    assert received == reply and received.events == (note,)
    assert (received.steps.seq, received.steps.loss, received.steps.metrics) == ([1], [2.0], {"mfu": [0.5]})


def test_the_newest_event_may_be_a_step() -> None:
    row = StepRow(1, 2, 5.0, None, None, None, None, None, None, None)
    step = SupervisorEvent(4, "step:1:2", "step", 1, 5.0, encode(row))
    note = SupervisorEvent(3, "note:1", "note", 1, 6.0, {"kind": "x"})
    status = SupervisorStatus()
    assert SyncReply.of("boot", [note, step], status).newest_seq == SyncReply.of("boot", [step], status).newest_seq == 4
    assert SyncReply.of("boot", [note], status).newest_seq == 3 and SyncReply("boot").newest_seq == 0


def test_every_intent_is_covered_by_these_tests() -> None:
    assert set(FULL.set_fields()) == set(vars(FULL))


def test_a_later_intent_overrides_and_an_unset_one_does_not() -> None:
    drained = PlannedChange({"n1": "local-1"}, "disks", 1.0, 2.0)
    merged = Intents(change=CHANGE, nodes=(NODE,)).merge(Intents(change=drained)).merge(Intents(no_spare="none"))
    assert merged == Intents(change=drained, nodes=(NODE,), no_spare="none")


def test_no_text_of_a_request_has_the_value_of_a_secret() -> None:
    request = SyncRequest(FULL, 7, "boot", 2.5)
    assert "v1" in repr(request) and "hunter2" not in repr(request) + str(request)
