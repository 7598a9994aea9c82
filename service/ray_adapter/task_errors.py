"""Exceptions of remote methods as plain text: Ray's own text contains a traceback with terminal colors."""

import re

from ray.exceptions import RayTaskError

from regroup.workers.contract.agent_records import AgentErrorKind, AgentFailure

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK_CHARACTERS = 8000


def failure_of(error: RayTaskError, node_name: str) -> AgentFailure:
    """Return the failure of an exception that an agent raised and did not classify itself.

    An error of the operating system is the node's. Any other one is a bug.
    """
    cause: BaseException = error.cause or error
    lines = _plain(str(cause)).strip().splitlines() or [""]
    kind = AgentErrorKind.NODE if isinstance(cause, OSError) else AgentErrorKind.BUG
    traceback = _plain(str(error))[-_TRACEBACK_CHARACTERS:]
    return AgentFailure(kind, f"{type(cause).__name__}: {lines[-1]}", traceback, node_name)


def first_line(error: BaseException) -> str:
    """Return the first line of an error of Ray, without colors. The other lines are advice about Ray's own files."""
    lines = _plain(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _plain(text: str) -> str:
    return _COLORS.sub("", text)
