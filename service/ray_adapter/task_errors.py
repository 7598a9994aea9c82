"""Exceptions of remote methods as plain text: Ray's own text contains a traceback with terminal colors."""

import re

import structlog
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    RayActorError,
    RaySystemError,
    RayTaskError,
    RpcError,
)

from regroup.workers.contract.agent_records import AgentErrorKind, AgentFailure

_log = structlog.get_logger(__name__)
_MEANINGS = (
    (re.compile(r"node (has )?died|node was (terminated|preempted|drained)|NODE_DIED"), "its node left the cluster"),
    (re.compile(r"potential root causes"), "its process died"),  # the causes that Ray lists here are guesses
    (re.compile(r"memory monitor|OutOfMemory"), "its process was ended because memory was short"),
    (re.compile(r"ray\.kill"), "it was ended"),
)
"""Text of Ray about a dead actor → the cause for people. The first match counts."""
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


def describe_ray_error(error: BaseException) -> str:
    """Return the meaning of an error of Ray for people, and log its own text.

    Ray's text contains ids of actors, addresses and codes of remote calls.
    """
    text = _plain(str(error))
    _log.debug("an error of Ray", error=text)
    if isinstance(error, ActorUnschedulableError):
        return "its node is not in the cluster"
    if isinstance(error, ActorUnavailableError):
        return "it does not answer; its process or its node may be lost"
    if isinstance(error, RayActorError):
        return next((meaning for pattern, meaning in _MEANINGS if pattern.search(text)), "its process died")
    if isinstance(error, GetTimeoutError | TimeoutError):
        return "there was no answer in time"
    if isinstance(error, RpcError | RaySystemError | ConnectionError):
        return "the head of the cluster cannot be reached"
    return first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error of Ray, without colors. The other lines are advice about Ray's own files."""
    lines = _plain(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _plain(text: str) -> str:
    return _COLORS.sub("", text)
