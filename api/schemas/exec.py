"""Wire models of `/v1/jobs/{job}/exec`: a command, and what it writes as server-sent events."""

import base64
import binascii
from typing import Annotated

from pydantic import Base64Bytes, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Duration

MAX_STDIN_BYTES = 512 * 1024
Argument = Annotated[str, Field(max_length=16 * 1024, pattern=r"^[^\x00]*$")]


def _strict(value: object) -> object:
    if isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise PydanticCustomError("base64", "needs base64: {why}", {"why": str(error)}) from error
    return value


class ExecRequest(BaseModel):
    """A command to run in the place of a rank: on its node, with its environment, in its folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[list[Argument], Field(min_length=1, max_length=1000)]
    """Program and arguments; no shell reads them."""
    rank: int = Field(default=0, ge=0, lt=2**31)
    """In whose place."""
    timeout: Duration | None = None
    """It is ended after so long, with exit code 124."""
    stdin: Annotated[Base64Bytes, BeforeValidator(_strict), Field(max_length=MAX_STDIN_BYTES)] = b""
    """What it reads from standard input, in base64."""


class ExecStarted(BaseModel):
    """Event `started`: the command runs."""

    model_config = ConfigDict(frozen=True)

    node: str
    """Name of the node."""
    generation: int
    """Whose rank's place it has."""


class ExecOutput(BaseModel):
    """Event `output`: some bytes that it wrote."""

    model_config = ConfigDict(frozen=True)

    stream: str
    """`stdout` or `stderr`."""
    data: Base64Bytes
    """In base64."""


class ExecExit(BaseModel):
    """Event `exit`, the last: how it ended."""

    model_config = ConfigDict(frozen=True)

    code: int
    """Exit code, negative for a signal."""
    why: str
    """`exited`, `timeout`, `ended` (the job is over, or nobody read) or `lost` (with its agent)."""


ExecEvent = ExecStarted | ExecOutput | ExecExit
EVENTS: dict[str, type[ExecStarted] | type[ExecOutput] | type[ExecExit]] = {
    "started": ExecStarted,
    "output": ExecOutput,
    "exit": ExecExit,
}
"""By the name of the event."""
