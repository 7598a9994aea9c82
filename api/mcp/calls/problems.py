"""Errors of tools as answers: the problem, the value and the remedy, for the model that reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.service.domain.error_codes import error_code_name
from regroup.service.domain.errors import FieldIssue, RegroupError, SpecError
from regroup.service.spec.issues import find_issues

_REMEDIES: Mapping[str, str] = {
    "precondition_failed": "The object has changed since its preview. Call the tool without `confirm` for a new one.",
    "unauthorized": "Give the MCP server a valid token: `regroup login`, REGROUP_TOKEN, or the Authorization header.",
    "forbidden": "Ask for the permission, or use a token that has it. Do not try another way.",
    "not_found": "List the objects for their names and ids. An object of a project that you do not see is not found.",
    "unavailable": "Try again later.",
    "too_many_requests": "Wait, and send fewer requests.",
}
_MAX_FIELDS = 20
_MAX_TEXT = 2000


@dataclass(frozen=True)
class Failure:
    """An error as a tool reports it."""

    code: str
    """Stable name, as in the API."""
    message: str
    fields: tuple[FieldIssue, ...] = ()
    remedy: str = ""

    def to_text(self) -> str:
        """Return the text for the model."""
        lines = [f"{self.code}: {self.message[:_MAX_TEXT]}"]
        lines += [f"- {str(field)[:400]}" for field in self.fields[:_MAX_FIELDS]]
        return "\n".join([*lines, *([self.remedy] if self.remedy else [])])

    def to_json(self) -> dict[str, Any]:
        """Return the error as plain data."""
        fields = [{"path": field.path[:400], "message": field.message[:400]} for field in self.fields[:_MAX_FIELDS]]
        body = {"code": self.code, "message": self.message[:_MAX_TEXT], "fields": fields, "remedy": self.remedy}
        return {"error": body}


def failure_of(error: RegroupError) -> Failure:
    """Return what a tool reports about an error."""
    if isinstance(error, ApiError):
        problem = error.problem
        fields = tuple(
            FieldIssue(each.pointer.strip("/").replace("/", "."), each.detail, each.value) for each in problem.errors
        )
        message = f"{problem.title}: {problem.detail}"
        return Failure(problem.code, message, fields, _REMEDIES.get(problem.code, ""))
    if isinstance(error, ServerUnreachableError):
        return Failure("unavailable", str(error), remedy="Start the server with `regroup serve`, or try again later.")
    code = error_code_name(error)
    fields = error.issues if isinstance(error, SpecError) else ()
    return Failure(code, "invalid values" if fields else str(error), fields, _REMEDIES.get(code, ""))


def failure_of_arguments(tool: str, error: ValidationError, arguments: object) -> Failure:
    """Return what is reported about arguments that do not match the schema of a tool."""
    return Failure(
        "invalid_arguments",
        f"the arguments of {tool} do not match its schema",
        tuple(find_issues(error, arguments)),
        "Correct these arguments and call the tool again.",
    )
