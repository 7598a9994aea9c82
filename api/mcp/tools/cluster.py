"""Tools for the server, its clusters, and the planner."""

from typing import Annotated, Any

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.tool import reads
from regroup.api.schemas.nodes import ClusterState
from regroup.api.schemas.wire import Wire
from regroup.service.domain.errors import FieldIssue, SpecError

FieldName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,60}$")]


class ServerState(Wire):
    """The server: versions, and the health of each component."""

    version: dict[str, Any]
    health: dict[str, Any]


class Clusters(Wire):
    """Clusters, the default one first."""

    clusters: list[ClusterState]


class PlanAnswer(Wire):
    """The fastest layouts, the best first, and the reasons against others."""

    report: dict[str, Any]


@reads("Show the health of the server")
async def show_server(caller: Caller) -> ServerState:
    """Return the versions of the server and the health of its components."""
    version, health = await caller.client.version(), await caller.client.health()
    return ServerState(version=version.model_dump(mode="json"), health=health.model_dump(mode="json"))


@reads("List clusters")
async def list_clusters(caller: Caller) -> Clusters:
    """List the clusters that jobs can name, with their capacity, and the reason why one does not answer."""
    return Clusters(clusters=await caller.client.clusters())


@reads("Plan a layout")
async def plan_layout(
    caller: Caller,
    question: Annotated[
        dict[FieldName, Any],
        Field(max_length=60, description="Fields of PlanRequest in the API: model, devices, batch and others"),
    ],
) -> PlanAnswer:
    """Find the fastest layouts for a model on a number of devices, with time and memory. Errors name wrong fields."""
    if "self" in question:  # no keyword of a method
        raise SpecError([FieldIssue("self", "unknown field")])
    found = await caller.client.plan(**question)
    return PlanAnswer(report=found.model_dump(mode="json"))
