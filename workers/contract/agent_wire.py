"""Calls of `AgentApi` as plain data, at both ends: `expose` on the agent's side, `client` on the caller's.

arguments: plain values, in the order of the method's parameters; messages carry the contract's version
reply: {"value": …} or {"error": AgentFailure}
"""

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from regroup.workers.contract.agent_api import AgentApi, AgentFailedError
from regroup.workers.contract.agent_records import AgentFailure
from regroup.workers.contract.codec import build, parse, plain
from regroup.workers.contract.messages import Message, check_version, to_json

Send = Callable[[str, list[Any]], Awaitable[Any]]
"""Send a method's name and its encoded arguments; return the `value` of the reply."""
_Agent = TypeVar("_Agent")


@dataclass(frozen=True)
class Signature:
    """The types of a method of `AgentApi`."""

    parameters: Mapping[str, Any]
    result: Any

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call in the order of the parameters.

        Raises:
            TypeError: too few or too many.
        """
        names = list(self.parameters)
        if len(args) > len(names) or set(kwargs) != set(names[len(args) :]):
            raise TypeError(f"expected the arguments {names}, got {len(args)} and {sorted(kwargs)}")
        return [*args, *(kwargs[name] for name in names[len(args) :])]

    def decoded(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments of a call from their plain data.

        Raises:
            ContractError: a message among them is of another version.
        """
        return [_decode(hint, item) for hint, item in zip(self.parameters.values(), arguments, strict=True)]


def _signatures() -> Mapping[str, Signature]:
    found: dict[str, Signature] = {}
    for name, method in inspect.getmembers(AgentApi, inspect.iscoroutinefunction):
        hints = typing.get_type_hints(method)
        result = hints.pop("return")
        found[name] = Signature(hints, result)
    return found


SIGNATURES: Mapping[str, Signature] = _signatures()
"""Method → its types."""


def client(send: Send) -> AgentApi:
    """Return an agent whose calls `send` delivers."""
    return typing.cast(AgentApi, _Client(send))


def value_of(reply: Mapping[str, Any]) -> Any:
    """Return the encoded result in a reply.

    Raises:
        AgentFailedError: the agent failed.
    """
    if (error := reply.get("error")) is not None:
        raise AgentFailedError(build(AgentFailure, error))
    return reply["value"]


def expose(cls: type[_Agent]) -> type[_Agent]:
    """Return a subclass whose methods of `AgentApi` take and return plain data.

    The module of `cls` must hold it as `<cls.__name__>Actor`: it is pickled by that name.
    """
    methods = {name: _exposed(getattr(cls, name), signature) for name, signature in SIGNATURES.items()}
    place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}Actor", "__doc__": cls.__doc__}
    return typing.cast(type[_Agent], type(cls.__name__, (cls,), {**methods, **place}))


def _exposed(method: Callable[..., Awaitable[Any]], signature: Signature) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def answer(self: Any, *arguments: Any) -> dict[str, Any]:
        try:
            return {"value": plain(await method(self, *signature.decoded(arguments)))}
        except AgentFailedError as error:
            return {"error": plain(error.failure)}

    return answer


class _Client:
    def __init__(self, send: Send) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in SIGNATURES:
            raise AttributeError(f"an agent has no method {name}")
        return functools.partial(self._call, name)

    async def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        signature = SIGNATURES[name]
        arguments = [_encode(item) for item in signature.arguments(args, kwargs)]
        return parse(signature.result, await self._send(name, arguments))


def _encode(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_encode(item) for item in typing.cast(list[Any], value)]
    return to_json(value) if isinstance(value, Message) else plain(value)


def _decode(hint: Any, data: Any) -> Any:
    for item in typing.cast(list[Any], data) if isinstance(data, list) else [data]:
        if isinstance(item, dict) and "v" in item:
            check_version(typing.cast(dict[str, Any], item))
    return parse(hint, data)
