"""Errors of Ray as text for people: no colors and no tracebacks in messages."""

import errno
import re

import pytest
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayTaskError,
    RpcError,
)

from regroup.service.ray_adapter.task_errors import describe_ray_error, failure_of, first_line
from regroup.workers.contract.agent_records import AgentErrorKind


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ValueError("illegal environment variable name"), AgentErrorKind.BUG),
        (OSError(errno.ENOSPC, "No space left on device"), AgentErrorKind.NODE),
    ],
)
def test_an_exception_of_a_method_is_a_failure_without_colors(cause: Exception, kind: AgentErrorKind) -> None:
    traceback = "\x1b[36mray::NodeAgent.start_zygote()\x1b[39m\n  File x\nValueError: y"
    error = RayTaskError("start_zygote", traceback, cause).as_instanceof_cause()
    failure = failure_of(error, "n1")
    assert failure.kind is kind and failure.message == f"{type(cause).__name__}: {cause}"
    assert "File x" in failure.traceback and "\x1b" not in failure.message + failure.traceback


def test_an_actor_that_is_gone_is_described_in_one_line() -> None:
    assert "\n" not in first_line(RayActorError()) and first_line(RayActorError())


GUESSES = (
    "The actor died unexpectedly. There are some potential root causes. (1) The process is killed by SIGKILL by OOM "
    "killer due to high memory usage. rpc_code: 14"
)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (
            RayActorError("6e0f5a61", "The actor died because its node has died. Node Id: 6e0f5a61"),
            "node left the cluster",
        ),
        (RayActorError("1b2c3d4e", GUESSES), "its process died"),
        (RayActorError("1b2c3d4e", "It was killed by `ray.kill`. rpc_code: 14"), "it was ended"),
        (RayActorError("1b2c3d4e", "The actor 1b2c3d4e died."), "its process died"),
        (
            ActorUnavailableError("RpcError: recvmsg:Connection reset by peer rpc_code: 14", b"1" * 16),
            "does not answer",
        ),
        (RpcError("failed to connect to all addresses; ipv4:127.0.0.1:6379 rpc_code: 14"), "head of the cluster"),
        (GetTimeoutError("Get timed out: some object(s) not ready: 00ffff"), "no answer in time"),
    ],
)
def test_a_message_has_the_meaning_of_an_error_and_no_text_of_ray(error: Exception, meaning: str) -> None:
    found = describe_ray_error(error)
    assert meaning in found
    assert not re.search(r"rpc|[0-9a-f]{6}|ipv4", found, re.IGNORECASE), found
