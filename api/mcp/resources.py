"""Resources and prompts: the schema of job specs, the skill file, specs and evidence of jobs."""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.skill import read_skill

MAX_EVIDENCE_BYTES = 8 * 2**20
"""Largest evidence that a resource returns."""
_MAX_URI = 500
_MAX_ARGUMENT = 200
_SCHEMA, _SKILL = "regroup://spec/schema", "regroup://skill"
_EVIDENCE = re.compile(r"regroup://jobs/([^/]{1,200})/incidents/(\d{1,9})/evidence")
_SPEC = re.compile(r"regroup://jobs/([^/]{1,200})/spec")

RESOURCES: Sequence[types.Resource] = (
    types.Resource(
        uri=_SCHEMA, name="job-spec-schema", title="Schema of job specs", mime_type="application/schema+json",
        description="JSON Schema of a job spec, as `submit_job` and `validate_spec` accept it",
    ),
    types.Resource(
        uri=_SKILL, name="skill", title="How to use regroup", mime_type="text/markdown",
        description="Commands, tools and habits for an agent that operates regroup",
    ),
)  # fmt: skip
TEMPLATES: Sequence[types.ResourceTemplate] = (
    types.ResourceTemplate(
        uri_template="regroup://jobs/{job}/spec", name="job-spec", title="Spec of a job", mime_type="application/json",
        description="Spec of a job, by its id",
    ),
    types.ResourceTemplate(
        uri_template="regroup://jobs/{job}/incidents/{number}/evidence", name="incident-evidence",
        title="Evidence of an incident", mime_type="application/zip",
        description="Zip file with stacks, output and exit codes of all ranks; the oldest incident is number 1",
    ),
)  # fmt: skip

_PROMPTS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "rescue_job": (
        "Find why a job waits, failed or is slow, and propose what to do",
        {"job": "Id or name of the job"},
        "Find out why the regroup job {job} waits, failed or is slow. Use explain_job first, then list_incidents, "
        "read_evidence and read_log as necessary. State the cause with its evidence. Propose the smallest change. Show "
        "the preview of each change, and make it only when I agree.",
    ),
    "drain_rack": (
        "Drain a rack before a deadline",
        {"rack": "Name of the rack", "deadline": "Time until it must be empty, for example 2h"},
        "Drain the regroup rack {rack} within {deadline}. Use list_domains to find it, then drain_domain without "
        "confirm. Show which jobs move, and begin only when I agree. Then report the progress with get_drain.",
    ),
    "close_month": (
        "Report the use of devices of a month",
        {"month": "Month, for example 2026-11"},
        "Report the device-hours and the cost of {month} (UTC) by project with export_usage_csv, and by user with "
        "report_usage. Name the three largest projects, device-hours without a price, and projects near their budget.",
    ),
}
"""Prompts: description, arguments and text."""
PROMPTS: Sequence[types.Prompt] = tuple(
    types.Prompt(
        name=name,
        description=description,
        arguments=[
            types.PromptArgument(name=argument, description=about, required=True) for argument, about in given.items()
        ],
    )
    for name, (description, given, _) in _PROMPTS.items()
)


async def read_resource(caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return the content of a resource.

    Raises:
        MCPError: there is no such resource, or it is too large.
        RegroupError: the API refuses the request.
    """
    found = _find(uri)
    if found is None:
        raise _refusal(f"no resource {uri[:_MAX_URI]!r}; list the resources and their templates")
    return types.ReadResourceResult(contents=[await found(caller)])


def read_prompt(name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
    """Return a prompt with its arguments.

    Raises:
        MCPError: there is no such prompt, or an argument is missing, unknown or too long.
    """
    if name not in _PROMPTS:
        raise _refusal(f"no prompt {name[:_MAX_ARGUMENT]!r}; prompts: {', '.join(_PROMPTS)}")
    description, given, text = _PROMPTS[name]
    if set(arguments) != set(given) or any(len(each) > _MAX_ARGUMENT for each in arguments.values()):
        raise _refusal(f"{name} needs {', '.join(given)}, each of at most {_MAX_ARGUMENT} characters")
    for argument, value in arguments.items():
        text = text.replace(f"{{{argument}}}", value)
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=description, messages=[message])


Content = types.TextResourceContents | types.BlobResourceContents
Read = Callable[[Caller], Awaitable[Content]]


def _find(uri: str) -> Read | None:
    if uri == _SCHEMA:
        return _read_schema
    if uri == _SKILL:
        return _read_skill
    if len(uri) <= _MAX_URI and (match := _SPEC.fullmatch(uri)):
        job = unquote(match[1])
        return lambda caller: _read_spec(caller, uri, job)
    if len(uri) <= _MAX_URI and (match := _EVIDENCE.fullmatch(uri)):
        job, number = unquote(match[1]), int(match[2])
        return lambda caller: _read_evidence(caller, uri, job, number)
    return None


async def _read_schema(caller: Caller) -> Content:
    return _json(_SCHEMA, await caller.client.spec_schema(), "application/schema+json")


async def _read_skill(_: Caller) -> Content:
    return types.TextResourceContents(uri=_SKILL, mime_type="text/markdown", text=read_skill())


async def _read_spec(caller: Caller, uri: str, job: str) -> Content:
    spec = (await caller.client.get(job)).spec
    return _json(uri, {} if spec is None else spec.model_dump(mode="json", exclude_unset=True), "application/json")


async def _read_evidence(caller: Caller, uri: str, job: str, number: int) -> Content:
    data = await caller.client.evidence(job, number)
    if len(data) > MAX_EVIDENCE_BYTES:
        raise _refusal(
            f"the evidence has {len(data)} bytes, and a resource at most {MAX_EVIDENCE_BYTES}; read single files with "
            f"read_evidence, or use `regroup evidence {job} {number}`"
        )
    return types.BlobResourceContents(uri=uri, mime_type="application/zip", blob=base64.b64encode(data).decode())


def _json(uri: str, value: object, mime_type: str) -> Content:
    return types.TextResourceContents(uri=uri, mime_type=mime_type, text=json.dumps(value, ensure_ascii=False))


def _refusal(message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message)
