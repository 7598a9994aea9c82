"""Messages about buffers and saved state survive the channel between a rank and its agent."""

import dataclasses
import json
from typing import Any

import pytest

from regroup.workers.contract import state_messages
from regroup.workers.contract.messages import ContractError, Message, decode, encode
from regroup.workers.contract.state_messages import (
    Buffers,
    BuffersRequest,
    SourceReleaseRequest,
    StateCatalogRequest,
    StateReply,
    StateRequest,
)

MESSAGES: list[Message] = [
    BuffersRequest(3, 2, 1 << 40),
    Buffers(4, -1),
    StateCatalogRequest(3, 2),
    StateRequest(3, 2, 0, 1 << 40),
    SourceReleaseRequest(3, 2),
    StateReply(),
    StateReply("rank 0 is lost", is_lost=True, failed_holders=("node-a", "node-b")),
    StateReply("__0_0.distcp is damaged", is_damaged=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_channel(message: Message) -> None:
    assert decode(encode(message)) == message


def test_every_message_of_the_module_is_covered() -> None:
    defined = {
        value
        for value in vars(state_messages).values()
        if isinstance(value, type) and value.__module__ == state_messages.__name__
    }
    assert defined == {type(message) for message in MESSAGES} and all(map(dataclasses.is_dataclass, defined))


@pytest.mark.parametrize("change", [{"type": "StateQuestion"}, {"v": 0}])
def test_unknown_messages_and_versions_are_refused(change: dict[str, Any]) -> None:
    data = json.loads(encode(StateCatalogRequest(3, 2)))
    assert change.keys() <= data.keys(), "the envelope has these"
    with pytest.raises(ContractError):
        decode(json.dumps({**data, **change}).encode())


def test_a_reply_without_an_error_is_a_success() -> None:
    reply = decode(encode(StateReply()))
    assert isinstance(reply, StateReply)
    assert (reply.error, reply.is_lost, reply.is_damaged, reply.failed_holders) == ("", False, False, ())
