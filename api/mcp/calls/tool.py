"""Definitions of tools: a function with typed parameters becomes a name, schemas, annotations and a call.

A tool that changes something has a parameter `confirm` in addition. Without it, the call is a dry run of the server,
and the answer has the value that confirms exactly this request.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.confirmation import MAX_CHARACTERS, VALID_S, digest_of
from regroup.api.schemas.wire import Wire
from regroup.service.domain.errors import PreconditionError

T = TypeVar("T")
Function = Callable[..., Awaitable[Any]]
State = Callable[..., Awaitable[str | Mapping[str, str]]]
"""Takes the caller and the arguments of a tool; returns the entity tag of the object, or of each of several objects, by
name. The tag is empty for an object that does not exist."""
PREVIEW_NOTE = (
    "Nothing has changed. Check the preview; to make this change, call the tool again with the same arguments and "
    "`confirm`."
)
DONE_NOTE = "The change was made."


class Change(Wire, Generic[T]):
    """The answer of a tool that changes something."""

    is_done: bool
    """True if the change was made, false for a preview."""
    result: T
    """The object after the change, or as it would be."""
    confirm: str | None = None
    """Value of `confirm` that makes the change of this preview."""
    confirm_expires_s: float | None = None
    """Time until which it is accepted, Unix seconds."""
    note: str
    """Next step, for the model."""


@dataclass(frozen=True)
class Effect:
    """The effect of a tool on its objects."""

    is_read_only: bool = True
    is_destructive: bool = False
    """True if the change ends, removes or replaces something."""
    is_idempotent: bool = True
    """True if a second call with the same arguments changes nothing more."""


@dataclass(frozen=True)
class Tool:
    """A tool."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    answer: TypeAdapter[Any]
    effect: Effect
    function: Function
    state: State | None = None
    """Reads the state of the object that it changes; None for tools that read, or that create something."""
    permission: str | None = None
    """Permission without which it is not offered; None if it always is."""

    async def call(self, caller: Caller, arguments: BaseModel) -> Any:
        """Run the tool; return its answer as plain data.

        Raises:
            RegroupError: the API, or the tool, refuses the request.
        """
        given = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        if self.effect.is_read_only:
            found = await self.function(caller, **given)
        else:
            found = await self._change(caller, given, arguments)
        return self.answer.dump_python(self.answer.validate_python(found), mode="json")

    async def _change(self, caller: Caller, given: dict[str, Any], arguments: BaseModel) -> Change[Any]:
        confirm = cast(str | None, given.pop("confirm"))
        request = {
            "tool": self.name, "arguments": arguments.model_dump(mode="json", exclude={"confirm"}),
            "caller": caller.fingerprint,
        }  # fmt: skip
        if confirm is None:
            state = await self._state(caller, given)
            preview = await self.function(caller.previewing(state), **given)
            value, made = caller.confirmations.issue(request, state)
            return Change(
                is_done=False, result=preview, confirm=value, confirm_expires_s=made.expires_s, note=PREVIEW_NOTE
            )
        checked = caller.confirmations.check(confirm, request)
        if not checked.state.startswith('"') and await self._state(caller, given) != checked.state:
            raise PreconditionError("the objects of this request have changed since its preview")
        done = await self.function(caller.changing(checked.state, checked.idempotency_key), **given)
        return Change(is_done=True, result=done, note=DONE_NOTE)

    async def _state(self, caller: Caller, given: Mapping[str, Any]) -> str:
        if self.state is None:
            return ""
        accepted = inspect.signature(self.state).parameters
        found = await self.state(caller, **{name: value for name, value in given.items() if name in accepted})
        return found if isinstance(found, str) else digest_of(found)


def reads(title: str, *, permission: str | None = None) -> Callable[[Function], Tool]:
    """Make a function a tool that changes nothing. Its docstring is the description."""
    return lambda function: _define(function, title, Effect(), None, permission)


def changes(
    title: str,
    *,
    state: State | None,
    is_destructive: bool = False,
    is_idempotent: bool = False,
    permission: str | None = None,
) -> Callable[[Function], Tool]:
    """Make a function a tool that changes something, after a preview.

    Args:
        title: name for people.
        state: reads the state of the object; None if the tool creates one.
        is_destructive: True if the change ends, removes or replaces something.
        is_idempotent: True if a second change with the same arguments has no effect.
        permission: permission without which the tool is not offered.
    """
    effect = Effect(is_read_only=False, is_destructive=is_destructive, is_idempotent=is_idempotent)
    return lambda function: _define(function, title, effect, state, permission)


Confirm = Annotated[
    str | None,
    Field(
        max_length=MAX_CHARACTERS,
        description=f"Value of the preview, accepted for {VALID_S / 60:.0f} minutes; null or absent for a preview",
    ),
]


def _define(function: Function, title: str, effect: Effect, state: State | None, permission: str | None) -> Tool:
    signature = inspect.signature(function, eval_str=True)
    caller, *parameters = signature.parameters.values()
    assert caller.name == "caller", f"{function.__name__}: the first parameter is the caller"
    fields: dict[str, Any] = {each.name: (each.annotation, _default(each)) for each in parameters}
    kind: Any = signature.return_annotation
    if not effect.is_read_only:
        fields["confirm"] = (Confirm, None)
        kind = Change[kind]
    strict = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)
    arguments = create_model(f"{function.__name__}_arguments", __config__=strict, **fields)
    description = inspect.cleandoc(function.__doc__ or "")
    if not effect.is_read_only:
        description += "\nWithout `confirm`, it is a dry run: it changes nothing and returns a preview."
    return Tool(
        function.__name__, title, description, arguments, TypeAdapter(kind), effect, function, state, permission
    )


def _default(parameter: inspect.Parameter) -> Any:
    return ... if parameter.default is inspect.Parameter.empty else parameter.default
