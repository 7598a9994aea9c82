"""The agent's API: the agent has every method, and every argument and result survives its encoding."""

import inspect
import json
import pickle
import types
import typing
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

import pytest

from regroup.workers.agent.agent import NodeAgent, NodeAgentActor
from regroup.workers.agent.standby import StandbyAgentActor
from regroup.workers.contract import agent_records, agent_wire
from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_records import AgentErrorKind, AgentFailure, DeathProof
from regroup.workers.contract.codec import parse, plain
from regroup.workers.contract.messages import AgentReport, ContractError, Join, Restore, to_json
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.rank_starts import RankStarts, joins_of

RECORDS = sorted(
    (cls for _, cls in inspect.getmembers(agent_records, is_dataclass) if cls.__module__ == agent_records.__name__),
    key=lambda cls: cls.__name__,  # pyright: ignore[reportAttributeAccessIssue]
)
JOIN = Join("j", 1, 0, 1, 0, 1, 0, 1, {"dp_shard": 1}, "cpu", "h", 1, Restore("none"), "m:f", RankConfig(seed=3))


def sample(hint: Any) -> Any:
    """Return a value of a type, with every optional part filled in."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Join:
        return JOIN
    if isinstance(hint, type) and origin is None:
        if is_dataclass(hint):
            hints = typing.get_type_hints(hint)
            return hint(**{field.name: sample(hints[field.name]) for field in fields(hint)})
        if issubclass(hint, StrEnum):
            return next(iter(hint))
        return {bool: True, int: 7, float: 0.5, str: "text", bytes: b"\xff"}.get(hint, {"any": [1, None]})
    if origin is tuple:
        return tuple(sample(kind) for kind in inner if kind is not Ellipsis)
    if origin in (list, Sequence):
        return [sample(inner[0])]
    if origin is dict:
        return {sample(inner[0]): sample(inner[1])}
    if origin is types.UnionType:
        return sample(next(kind for kind in inner if kind is not types.NoneType))
    raise TypeError(f"no sample of {hint}")


def through_json(value: Any) -> Any:
    """Return plain data as JSON would deliver it; bytes, which JSON lacks, stay as they are."""
    return json.loads(json.dumps(value)) if b"\xff" not in _leaves(value) else value


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        parts: Any = value.values() if isinstance(value, dict) else value
        return [leaf for part in parts for leaf in _leaves(part)]
    return [value]


@pytest.mark.parametrize("name", sorted(agent_wire.SIGNATURES))
def test_the_agent_has_every_method_with_the_same_parameters(name: str) -> None:
    declared, defined = getattr(AgentApi, name), NodeAgent.__dict__[name]
    # Once the class is an actor in this process, Ray wraps its methods and adds a keyword parameter of its own.
    signature = inspect.signature(inspect.unwrap(defined))
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "_ray_trace_ctx"]
    assert signature.replace(parameters=own) == inspect.signature(declared)
    assert typing.get_type_hints(defined) == typing.get_type_hints(declared)
    assert inspect.iscoroutinefunction(NodeAgentActor.__dict__[name])


def test_the_protocol_has_no_other_methods() -> None:
    public = {name for name in vars(AgentApi) if not name.startswith("_")}
    assert public == set(agent_wire.SIGNATURES)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_every_record_survives_its_encoding(cls: type[Any]) -> None:
    value = sample(cls)
    assert parse(cls, through_json(plain(value))) == value


@pytest.mark.parametrize("name", sorted(agent_wire.SIGNATURES))
async def test_every_call_survives_the_wire(name: str) -> None:
    signature = agent_wire.SIGNATURES[name]
    arguments = [sample(hint) for hint in signature.parameters.values()]
    result = None if signature.result is types.NoneType else sample(signature.result)
    received: list[Any] = []

    async def send(method: str, encoded: list[Any]) -> Any:
        assert method == name
        received.extend(signature.decoded(through_json(encoded)))
        return through_json(plain(result))

    assert await getattr(agent_wire.client(send), name)(*arguments) == result
    assert received == arguments


async def test_arguments_may_be_named_and_must_be_complete() -> None:
    sent: list[Any] = []

    async def send(method: str, encoded: list[Any]) -> Any:
        sent.append((method, encoded))

    agent = agent_wire.client(send)
    await agent.stop_ranks(1, save=True, reason="drained")
    assert sent == [("stop_ranks", [1, "drained", True])]
    with pytest.raises(TypeError, match="save"):
        await agent.stop_ranks(1, "drained")  # pyright: ignore[reportCallIssue]
    with pytest.raises(AttributeError, match="no method restart"):
        agent.restart()  # type: ignore[attr-defined]


class Exposed(NodeAgent):
    """An agent of which two methods work, one fails and one has a bug."""

    def __init__(self) -> None:
        pass

    async def kill_ranks(self, generation: int, for_restore: bool) -> DeathProof:
        return DeathProof((generation,), AgentReport("n", "b", generation, (), ()))

    async def shutdown(self) -> None:
        raise AgentFailedError(AgentFailure(AgentErrorKind.STALE, "too old", node_name="n0"))

    async def inject_fault(self, do: str) -> None:
        raise AssertionError(do)


async def test_an_exposed_agent_replies_with_plain_data() -> None:
    agent: Any = agent_wire.expose(Exposed)()
    reply = await agent.kill_ranks(3, False)
    assert json.loads(json.dumps(reply))["value"]["stuck"] == [3]
    failed = await agent.shutdown()
    assert failed["error"]["kind"] == "stale"
    with pytest.raises(AgentFailedError, match="too old") as error:
        agent_wire.value_of(json.loads(json.dumps(failed)))
    assert error.value.failure == AgentFailure(AgentErrorKind.STALE, "too old", node_name="n0")
    with pytest.raises(AssertionError, match="kill_store"):
        await agent.inject_fault("kill_store")


def test_ranks_of_another_contract_version_are_not_formed() -> None:
    common = json.dumps({**to_json(JOIN), "v": 1}).encode()
    with pytest.raises(ContractError, match="version 1"):
        joins_of(common, RankStarts(0, "n0", (0,), (0,), (0,)))


def test_actors_are_pickled_by_name() -> None:
    """Ray would store a copy of the class for every agent otherwise."""
    for cls in (NodeAgentActor, StandbyAgentActor):
        assert pickle.loads(pickle.dumps(cls)) is cls
