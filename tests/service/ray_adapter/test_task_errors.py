"""Errors of Ray as text for people: no colors and no tracebacks in messages."""

import errno

import pytest
from ray.exceptions import RayActorError, RayTaskError

from regroup.service.ray_adapter.task_errors import failure_of, first_line
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
