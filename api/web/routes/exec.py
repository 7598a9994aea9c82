"""/v1/jobs/{job}/exec: run a command on the node of a rank, with its output as server-sent events."""

import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from regroup.api.schemas.exec import ExecExit, ExecOutput, ExecRequest, ExecStarted
from regroup.api.web.event_stream import KEEPALIVE_S, stream_events
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import JobForCommands, TheSender, TheServices
from regroup.service.operations import exec
from regroup.service.ports.cluster import Cluster

_STREAM: dict[str, Any] = {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
    "description": "The command runs",
}
router = APIRouter(route_class=OperationRoute, prefix="/v1/jobs/{job}", tags=["exec"], responses=responses())


@router.post(
    "/exec",
    response_class=StreamingResponse,
    responses={200: _STREAM, **responses("conflict", "body_too_large", "malformed_json")},
)
@unconditional("runs a command and streams its output")
async def run(job: JobForCommands, command: ExecRequest, services: TheServices, sender: TheSender) -> StreamingResponse:
    """Run a command on the node of a rank, with the rank's environment and folder, while its generation runs.

    Events: `started`, `output` (standard output and error as they arrive), `exit`; or `dropped` if you lose your access
    while the command runs. The command and all processes that
    it started are stopped when the request is closed, at the timeout, and when the job ends. The end of a generation
    does not stop it.
    """
    requested = exec.Command(tuple(command.command), command.rank, command.timeout, command.stdin)
    running = await exec.start_command(
        services.store, services.cluster, job, requested, now=services.clock(), author=sender.author
    )
    return stream_events(_events(services.cluster, running))


async def _events(cluster: Cluster, running: exec.RunningCommand) -> AsyncGenerator[bytes]:
    items = exec.follow_command(cluster, running)
    try:
        yield _event("started", ExecStarted(node=running.node, generation=running.generation))
        last_sent_s = time.monotonic()
        async for item in items:
            match item:
                case exec.Output():
                    yield _event("output", ExecOutput.model_construct(stream=item.stream, data=item.data))
                case exec.CommandExit():
                    yield _event("exit", ExecExit(code=item.code, why=item.why))
                case None if time.monotonic() - last_sent_s > KEEPALIVE_S:
                    yield KEEPALIVE_COMMENT
                case None:
                    continue
            last_sent_s = time.monotonic()
    finally:
        await items.aclose()


def _event(kind: str, data: BaseModel) -> bytes:
    return format_sse_event(data_str=data.model_dump_json(), event=kind)
