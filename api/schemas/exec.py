"""Wire models of `/v1/jobs/{job}/exec`: a command, and its output as server-sent events."""

import base64
import binascii
from typing import Annotated

from pydantic import AfterValidator, Base64Bytes, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import MAX_RANKS, Duration, Integer, check_nul

MAX_STDIN_BYTES = 512 * 1024
Argument = Annotated[str, Field(max_length=16 * 1024), AfterValidator(check_nul)]


def _strict(value: object) -> object:
    if isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise PydanticCustomError("base64", "is not valid base64: {why}", {"why": str(error)}) from error
    return value


class ExecRequest(BaseModel):
    """A command to run on the node of a rank, with its environment and in its folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[list[Argument], Field(min_length=1, max_length=1000)]
    """Program and arguments. The command runs without a shell."""
    rank: Integer = Field(default=0, ge=0, lt=MAX_RANKS)
    """Rank whose node, environment and folder are used."""
    timeout: Duration | None = None
    """Time after which the command is stopped, with exit code 124."""
    stdin: Annotated[Base64Bytes, BeforeValidator(_strict), Field(max_length=MAX_STDIN_BYTES)] = b""
    """Standard input of the command, in base64."""


class ExecStarted(BaseModel):
    """Event `started`: the command runs."""

    model_config = ConfigDict(frozen=True)

    node: str
    """Name of the node."""
    generation: int
    """Generation of the rank."""


class ExecOutput(BaseModel):
    """Event `output`: bytes that the command wrote."""

    model_config = ConfigDict(frozen=True)

    stream: str
    """`stdout` or `stderr`."""
    data: Base64Bytes
    """Bytes in base64."""


class ExecExit(BaseModel):
    """Event `exit`, the last one: the end of the command."""

    model_config = ConfigDict(frozen=True)

    code: int
    """Exit code, negative for a signal."""
    why: str
    """Reason: `exited`, `timeout`, `ended` (the job ended or the client left) or `lost` (its agent was lost)."""


ExecEvent = ExecStarted | ExecOutput | ExecExit
EVENTS: dict[str, type[ExecStarted] | type[ExecOutput] | type[ExecExit]] = {
    "started": ExecStarted,
    "output": ExecOutput,
    "exit": ExecExit,
}
"""Models by name of the event."""
