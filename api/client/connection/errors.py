"""Errors that the client raises."""

import json

import httpx2
from pydantic import ValidationError

from regroup.api.schemas.problems import Problem
from regroup.service.domain.errors import RegroupError

_MAX_DETAIL = 200  # characters of a response that is not a problem


class ApiError(RegroupError):
    """The server rejected a request. `problem` contains the reason."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        fields = "".join(f"\n  {field.pointer}: {field.detail}" for field in problem.errors)
        super().__init__(f"{problem.title}: {problem.detail}{fields if len(problem.errors) > 1 else ''}")

    def __reduce__(self) -> tuple[type["ApiError"], tuple[Problem]]:
        return (ApiError, (self.problem,))


class ServerUnreachableError(RegroupError):
    """The server does not respond. The request may or may not have been processed."""


class WaitTimeoutError(RegroupError, TimeoutError):
    """A condition did not become true in time. The job or the node is unaffected."""


def error_from(response: httpx2.Response) -> ApiError:
    """Return the error that a response describes."""
    try:
        return ApiError(Problem.model_validate_json(response.content))
    except (ValidationError, json.JSONDecodeError):
        title = f"HTTP {response.status_code} without a problem document: is this a regroup server?"
        detail = response.text[:_MAX_DETAIL]
        return ApiError(
            Problem(type="about:blank", title=title, status=response.status_code, detail=detail, code="unknown")
        )
