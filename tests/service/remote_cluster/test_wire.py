"""Each call of `Cluster` arrives at the other end as it was sent, and so does its result or its error."""

import json
from typing import Any

import pytest

from regroup.service.domain.errors import ConflictError, NotFoundError, RegroupError, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import Reason
from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.autoscaler_request import Bundle
from regroup.service.ports.cluster import (
    ClusterUnavailableError,
    LogChunk,
    Reservation,
    ReservationRefusedError,
    SupervisorGoneError,
)
from regroup.service.ports.sync import (
    EndRequest,
    Intents,
    SecretValues,
    SupervisorEvent,
    SupervisorStatus,
    SyncReply,
    SyncRequest,
)
from regroup.service.remote_cluster.wire import ERRORS, SIGNATURES, VERSION, CallError, ClusterFaultError, encode_error
from regroup.workers.contract.agent_records import CommandExit, CommandOutput, CommandRequest, RankStack
from regroup.workers.contract.messages import StepRow
from tests.support.inputs.step_columns import columns_of
from tests.support.inputs.sync_records import start_config

NODE = Node("a" * 56, "gpu-1", "10.0.0.1", labels={"ray.io/gpu-domain": "d"}, cpus=8.0, gpus=4.0, memory_bytes=2**40,
            free_gpus=1.5, is_draining=True, drain_deadline_s=1e9, domains=("z", "", "r", ""))  # fmt: skip
INTENTS = Intents(
    end=EndRequest(Reason.CANCELLED_BY_USER, "by ä"), secrets=SecretValues("v1", {"TOKEN": "s"}), layout=Layout()
)
EVENT = SupervisorEvent(3, "state:3", "state", 2, 12.5, {"state": "RUNNING", "list": [1, None]})
STEP = StepRow(2, 5, 12.5, None, 2.0, None, None, 2**63, 1e-3, None, extra={"mfu": 0.5})
COMMAND = CommandRequest("k", 0, ("ls", "ä"), None, b"\xff\x00")
START = start_config("job_1", name="gpt", generations=[(1, 0)], incidents=[{"id": "i", "times": {"seen_s": 1.5}}])

ARGUMENTS: dict[str, dict[str, Any]] = {
    "request_nodes": {"bundles": [Bundle(1, 2, 3)]},
    "prestart": {"node": NODE},
    "stand_by": {"node": NODE, "ifname": "eth0", "preflight": True, "rank_users": "1-2"},
    "is_clear": {"node": NODE, "job_id": "job_1"},
    "create_reservation": {"reservation": Reservation("r", "job_1", NODE.id, 2, "cuda", 4, 2**50)},
    "start_supervisor": {"name": "regroup-supervisor:job_1", "config": START},
    "sync": {"request": SyncRequest(INTENTS, 7, "boot", 10.0), "job_id": "job_1"},
    "execute": {"job_id": "job_1", "node_id": NODE.id, "request": COMMAND},
    "read_log": {"job_id": "j", "generation": 1, "rank": 0, "stream": "stdout", "offset": 2**40, "limit": 5},
}
RESULTS: dict[str, Any] = {
    "nodes": [NODE],
    "lost_nodes": ["local-2"],
    "stand_by": "a fault",
    "is_clear": True,
    "create_reservation": [0, 3],
    "reservations": {"a", "b"},
    "actors": set(),
    "recorded_jobs": {"job_1"},
    "start_supervisor": None,
    "sync": SyncReply(
        "boot", (EVENT,), SupervisorStatus("RUNNING", ranks={"0": [3, "forward"]}, layout=Layout()), columns_of([STEP])
    ),
    "read_log": LogChunk("ä\x00", 0, 3, True),
    "stacks": {0: RankStack("n", 1, (3, "forward"), "…"), 10: RankStack("n", 2, None, "")},
    "execute": 4,
    "execution": CommandOutput((("stdout", b"\xff\x00binary"), ("stderr", b"")), CommandExit(-9, "lost", (7,))),
    "dashboard_url": None,
}


@pytest.mark.parametrize("method", ARGUMENTS)
def test_arguments_arrive_as_they_were_sent(method: str) -> None:
    body = SIGNATURES[method].encode_request((), ARGUMENTS[method])
    assert SIGNATURES[method].decode_request(body) == ARGUMENTS[method]


@pytest.mark.parametrize("method", RESULTS)
def test_a_result_arrives_as_it_was_returned(method: str) -> None:
    found = SIGNATURES[method].decode_reply(SIGNATURES[method].encode_value(RESULTS[method]))
    assert _as_lists(found) == _as_lists(RESULTS[method])
    assert type(found) is type(RESULTS[method]) or isinstance(found, list | tuple)


def test_every_method_of_the_port_can_be_sent() -> None:
    for name, signature in SIGNATURES.items():
        body = signature.encode_request((), {})
        assert signature.decode_request(body) == {}, name
    assert {"nodes", "sync", "execution", "dashboard_url"} <= SIGNATURES.keys()


def test_positional_arguments_get_the_names_of_the_method() -> None:
    body = SIGNATURES["is_clear"].encode_request((NODE, "job_1"), {})
    assert SIGNATURES["is_clear"].decode_request(body) == {"node": NODE, "job_id": "job_1"}
    for args, kwargs in [((NODE, "j", "more"), {}), ((NODE,), {"node": NODE}), ((), {"nodes": 1})]:
        with pytest.raises(TypeError, match="expected arguments"):
            SIGNATURES["is_clear"].encode_request(args, kwargs)


@pytest.mark.parametrize("error", [ClusterUnavailableError, ConflictError, NotFoundError, ReservationRefusedError,
                                   SupervisorGoneError])  # fmt: skip
def test_an_error_arrives_as_it_was_raised(error: type[RegroupError]) -> None:
    with pytest.raises(error, match="no node ä") as raised:
        SIGNATURES["nodes"].decode_reply(encode_error(error("no node ä")))
    assert type(raised.value) is error
    assert error.__name__ in ERRORS


def test_an_unknown_error_arrives_as_a_fault_of_the_cluster() -> None:
    with pytest.raises(ClusterFaultError, match="wrong"):
        SIGNATURES["nodes"].decode_reply(encode_error(SpecError([])).replace(b'""', b'"wrong"'))
    later = json.dumps({"error": {"kind": "ErrorOfALaterVersion", "message": "wrong"}}).encode()
    with pytest.raises(ClusterFaultError, match="wrong"):
        SIGNATURES["nodes"].decode_reply(later)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{", b"\xff", b'{"version": 1}', b'{"version": 2, "arguments": {}}',
        b'{"version": 1, "arguments": {"request": 1, "job_id": "j"}}',
        b'{"version": 1, "arguments": {"request": {"intents": 3}, "job_id": "j"}}',
        b'{"version": 1, "arguments": {"job_id": ["j"]}}', b'{"version": 1, "arguments": {"other": 1}}',
        b'{"version": 1, "arguments": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)  # fmt: skip
def test_a_body_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(CallError):
        SIGNATURES["sync"].decode_request(body)


def test_another_version_is_named_with_a_remedy() -> None:
    body = json.dumps({"version": VERSION + 1, "arguments": {}}).encode()
    with pytest.raises(CallError, match=rf"version {VERSION + 1} .*run the same version of regroup"):
        SIGNATURES["nodes"].decode_request(body)


@pytest.mark.parametrize("body", [b"", b"3", b'{"value": 3}', b'{"value": [{"id": "a"}]}', b'{"error": 1}'])
def test_a_reply_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(CallError):
        SIGNATURES["nodes"].decode_reply(body)


def _as_lists(value: Any) -> Any:
    """Return sequences as lists: JSON has one kind of them."""
    if isinstance(value, list | tuple):
        return [_as_lists(each) for each in value]
    return value
