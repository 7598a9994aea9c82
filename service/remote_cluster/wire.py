"""Calls of `Cluster` as JSON, at both ends. `RemoteCluster` sends them, and the gateway answers them.

POST /calls/METHOD
request: {"version": 1, "arguments": {parameter: value, …}}
reply: {"value": …}, or {"error": {"kind": name of a class in `ERRORS`, "message": …}}
"""

import base64
import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from regroup.service.domain.errors import ConflictError, NotFoundError, RegroupError, UnavailableError
from regroup.service.ports.cluster import (
    Cluster,
    ClusterUnavailableError,
    ReservationRefusedError,
    SupervisorGoneError,
)
from regroup.service.ports.start_config import StartConfig
from regroup.service.ports.sync import SyncReply, SyncRequest
from regroup.workers.contract.agent_records import CommandOutput, CommandRequest
from regroup.workers.contract.codec import build, plain

VERSION = 1
"""Version of the calls. Both ends refuse another one, so that an upgrade never misreads a record."""
CALLS = "/calls/"
"""Begins the path of a call; the name of the method follows."""


class ClusterFaultError(RegroupError):
    """The gateway failed while it handled a call. Its log has the traceback."""


class CallError(RegroupError):
    """A request or a reply is not a call of this version."""


ERRORS: Mapping[str, type[RegroupError]] = {
    each.__name__: each
    for each in (
        ClusterFaultError,
        ClusterUnavailableError,
        ConflictError,
        NotFoundError,
        ReservationRefusedError,
        SupervisorGoneError,
        UnavailableError,
    )
}
"""Name → error that a method of `Cluster` may raise at the other end."""

_BASE64 = "base64"


def _with_text(data: Any) -> Any:
    """Return plain data with bytes as text, which JSON can carry."""
    if isinstance(data, bytes):
        return {_BASE64: base64.b64encode(data).decode()}
    if isinstance(data, list):
        return [_with_text(each) for each in typing.cast(list[Any], data)]
    if isinstance(data, dict):
        return {key: _with_text(each) for key, each in typing.cast(dict[str, Any], data).items()}
    return data


def _with_bytes(data: Any) -> Any:
    """Return the plain data that `_with_text` has encoded."""
    if isinstance(data, list):
        return [_with_bytes(each) for each in typing.cast(list[Any], data)]
    if isinstance(data, dict):
        found = typing.cast(dict[str, Any], data)
        if found.keys() == {_BASE64}:
            return base64.b64decode(found[_BASE64], validate=True)
        return {key: _with_bytes(each) for key, each in found.items()}
    return data


def _encoded_with_bytes(record: type[Any]) -> Any:
    """Return a record of the contract that has bytes, for pydantic."""
    return Annotated[
        record,
        PlainSerializer(lambda value: _with_text(plain(value))),
        PlainValidator(lambda data: build(record, _with_bytes(data))),
    ]


_RECORDS: Mapping[Any, Any] = {
    CommandOutput: _encoded_with_bytes(CommandOutput),
    CommandRequest: _encoded_with_bytes(CommandRequest),
    StartConfig: Annotated[StartConfig, PlainSerializer(StartConfig.to_json), PlainValidator(StartConfig.from_json)],
    SyncRequest: Annotated[SyncRequest, PlainSerializer(SyncRequest.to_json), PlainValidator(SyncRequest.from_json)],
    SyncReply: Annotated[SyncReply, PlainSerializer(SyncReply.to_json), PlainValidator(SyncReply.from_json)],
}
"""Records that have a codec of their own: a field is bytes, or one of several dataclasses."""


class _Request(BaseModel):
    version: int
    arguments: dict[str, Any]


class _Error(BaseModel):
    kind: str
    message: str


class _Reply(BaseModel):
    value: Any = None
    error: _Error | None = None


@dataclass(frozen=True)
class Signature:
    """The types of a method of `Cluster`."""

    parameters: Mapping[str, Any]
    """Parameter → type, in order."""
    result: Any

    def encode_request(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body of a request.

        Raises:
            TypeError: the arguments are not those of the method.
        """
        named = dict(zip(self.parameters, args, strict=False)) | dict(kwargs)
        if len(args) + len(kwargs) != len(named) or not named.keys() <= self.parameters.keys():
            raise TypeError(f"expected arguments of {list(self.parameters)}, got {len(args)} and {sorted(kwargs)}")
        plain = {name: self._adapters[name].dump_python(value, mode="json") for name, value in named.items()}
        return _Request(version=VERSION, arguments=plain).model_dump_json().encode()

    def decode_request(self, body: bytes) -> dict[str, Any]:
        """Return the arguments of a request by name.

        Raises:
            CallError: the body is not a request of this version, or an argument has another type.
        """
        try:
            request = _Request.model_validate_json(body)
            if request.version != VERSION:
                raise CallError(_describe_version(request.version))
            if unknown := request.arguments.keys() - self.parameters.keys():
                raise CallError(f"unknown argument {min(unknown)!r}; expected some of {list(self.parameters)}")
            return {name: _parse(self._adapters[name], value) for name, value in request.arguments.items()}
        except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise CallError(f"the request is not a call of version {VERSION}: {type(error).__name__}") from error

    def encode_value(self, value: Any) -> bytes:
        """Return the body of a reply with a result."""
        return _Reply(value=self._result.dump_python(value, mode="json")).model_dump_json().encode()

    def decode_reply(self, body: bytes) -> Any:
        """Return the result in a reply.

        Raises:
            RegroupError: one of `ERRORS`, as the method raised it at the other end.
            CallError: the body is not a reply of this version.
        """
        try:
            reply = _Reply.model_validate_json(body)
            if reply.error is None:
                return _parse(self._result, reply.value)
        except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise CallError(f"the reply is not one of version {VERSION}: {type(error).__name__}") from error
        raise ERRORS.get(reply.error.kind, ClusterFaultError)(reply.error.message)

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        return {name: _adapter(hint) for name, hint in self.parameters.items()}

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        return _adapter(self.result)


def encode_error(error: RegroupError) -> bytes:
    """Return the body of a reply with an error. An error outside `ERRORS` becomes a `ClusterFaultError`."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in ERRORS), ClusterFaultError.__name__)
    return _Reply(error=_Error(kind=kind, message=str(error))).model_dump_json(exclude={"value"}).encode()


def _signatures() -> Mapping[str, Signature]:
    found: dict[str, Signature] = {}
    for name, method in inspect.getmembers(Cluster, inspect.iscoroutinefunction):
        hints = typing.get_type_hints(method)
        result = hints.pop("return")
        found[name] = Signature(hints, result)
    return found


SIGNATURES: Mapping[str, Signature] = _signatures()
"""Method of `Cluster` → its types."""


def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_RECORDS.get(hint, hint))


def _parse(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return a value from its JSON data. Sets have the form of JSON, which only the JSON reader accepts."""
    return adapter.validate_json(_JSON.dump_json(value))


def _describe_version(version: int) -> str:
    return (
        f"the caller speaks version {version} of the calls, and this process version {VERSION}: "
        "run the same version of regroup in the control plane and in its gateways"
    )


_JSON: TypeAdapter[Any] = TypeAdapter(Any)
