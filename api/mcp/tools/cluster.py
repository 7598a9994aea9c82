"""Tools for the server, its clusters, and the planner."""

from typing import Annotated, Any

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Count, InProject, Time
from regroup.api.mcp.calls.tool import reads
from regroup.api.schemas.capacity.queue import Queue
from regroup.api.schemas.capacity.what_if import JobForecast, WaitForecast
from regroup.api.schemas.nodes import ClusterState
from regroup.api.schemas.reports.reliability import Reliability
from regroup.api.schemas.reports.server_settings import ServerSetting
from regroup.api.schemas.reports.verdicts import ChaosVerdict
from regroup.api.schemas.summaries.overview import Overview
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


class ServerSettings(Wire):
    """Effective settings of the server that answered."""

    settings: list[ServerSetting]


class ChaosVerdicts(Wire):
    """Verdicts of chaos rehearsals, the newest first."""

    verdicts: list[ChaosVerdict]


class PlanAnswer(Wire):
    """The fastest layouts, the best first, and the reasons against others."""

    report: dict[str, Any]


class Forecast(Wire):
    """The queue of now, simulated with and without a change."""

    summary: str
    jobs: list[JobForecast]
    """The first queued jobs, and those that the change adds or cancels."""
    left_out: int
    """Number of queued jobs that are not in the list."""
    waits: WaitForecast
    projects: dict[str, WaitForecast]


@reads("Show the health of the server")
async def show_server(caller: Caller) -> ServerState:
    """Return the versions of the server and the health of its components."""
    version, health = await caller.client.version(), await caller.client.health()
    return ServerState(version=version.model_dump(mode="json"), health=health.model_dump(mode="json"))


@reads("Show the settings of the server")
async def list_server_settings(
    caller: Caller,
    changed_only: Annotated[bool, Field(description="Only settings whose value is not the default")] = True,
) -> ServerSettings:
    """List the effective settings with the source of each value. Secrets are not shown. Only operators may do so."""
    found = await caller.client.server_settings()
    return ServerSettings(settings=[each for each in found if not changed_only or each.source != "default"])


@reads("Report reliability")
async def report_reliability(
    caller: Caller, from_s: Time = None, to_s: Time = None, project: InProject = None
) -> Reliability:
    """Report interruptions of all jobs in a window: time of each phase, causes, lost device-hours, nodes, goodput."""
    return await caller.client.reliability(from_s=from_s, to_s=to_s, project=project)


@reads("List chaos rehearsals")
async def list_chaos_verdicts(
    caller: Caller,
    scenario: Annotated[str | None, Field(max_length=63, description="Only verdicts of this scenario")] = None,
    limit: Count = 50,
) -> ChaosVerdicts:
    """List recorded verdicts of chaos rehearsals: whether the invariants held, and what the faults cost."""
    return ChaosVerdicts(verdicts=await caller.client.chaos_verdicts(scenario=scenario, limit=limit))


@reads("Show the overview")
async def show_overview(caller: Caller) -> Overview:
    """Return what runs, what waits and why, what needs a person, and the incidents of the last day. Start with it."""
    return await caller.client.overview()


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


@reads("List the queue")
async def list_queue(
    caller: Caller,
    limit: Count = 50,
    after: Annotated[int, Field(ge=0, lt=2**31, description="Number of jobs to skip")] = 0,
) -> Queue:
    """List the queued jobs in scheduling order: why each waits, and its predicted start."""
    return await caller.client.queue(offset=after, limit=limit)


@reads("Simulate the queue with a change")
async def simulate_queue(
    caller: Caller,
    scenario: Annotated[
        dict[FieldName, Any],
        Field(
            max_length=10,
            description="Fields of WhatIfRequest in the API: add_nodes {count, like}, drain [node or rack:r1], quotas "
            "{project: {limit}}, cancel [job id], add_jobs [{name, ranks, duration_s}]",
        ),
    ],
    limit: Count = 50,
) -> Forecast:
    """Predict the waits of the queue with other nodes, quotas or jobs. Changes nothing. Errors name wrong fields."""
    found = await caller.client.what_if(scenario)
    jobs = [job for job in found.jobs if not job.is_running or job.is_cancelled]
    return Forecast(
        summary=found.summary,
        jobs=jobs[:limit],
        left_out=max(0, len(jobs) - limit),
        waits=found.waits,
        projects=found.projects,
    )
