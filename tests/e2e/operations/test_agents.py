"""An agent rescues a real job that failed, over MCP alone, with the token that it finds on this machine."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.jobs.step_gates import Gates
from tests.support.servers.mcp_agents import Agent, agent_of_user
from tests.support.servers.regroup_server import JOB_S, Server

Spec = Callable[..., dict[str, Any]]


async def poll(agent: Agent, tool: str, is_found: Callable[[Any], bool], **arguments: Any) -> Any:
    """Call a tool until its answer is as expected, and return it."""
    async with asyncio.timeout(JOB_S):
        while not is_found(found := await agent.read(tool, **arguments)):  # noqa: ASYNC110  # an agent polls
            await asyncio.sleep(0.3)
    return found


async def ended(agent: Agent, job: str) -> Any:
    """Return a job once it has ended."""
    return await poll(agent, "get_job", lambda found: found["finished_at"] is not None, job=job)


@pytest.mark.slow
async def test_an_agent_rescues_a_failed_job_and_compares_both(
    served: Server, spec: Spec, control: Job, tmp_path: Path
) -> None:
    raises = [{"at": {"rank": 1, "step": 13, "phase": "forward"}, "do": "raise"}]
    environment = {"REGROUP_STATE_DIR": str(served.state), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    async with agent_of_user(environment) as agent:
        assert "regroup" in agent.client.server_info.name
        gates = Gates(tmp_path, 12)
        job = (await agent.change("submit_job", spec=spec("agent-fails", faults=raises, **gates.parts)))["id"]
        await poll(agent, "list_checkpoints", lambda found: found["total"] > 0, job=job)
        gates.open(12)
        assert (await ended(agent, job))["state"] == "FAILED"

        why = await agent.read("explain_job", job=job)
        assert why["reason"] == "user_error" and why["error"]["traceback"]
        checkpoints = (await agent.read("list_checkpoints", job=job))["checkpoints"]
        assert checkpoints[0]["step"] == 8
        error = await agent.read("read_log", job=job, rank=1, stream="stderr", from_end=True)
        output = await agent.read("read_log", job=job, rank=0)
        assert error["is_complete"] and output["is_complete"]

        fixed = {"faults": None, **dict.fromkeys(gates.parts)}
        made = await agent.change(
            "resubmit_job", job=job, name="agent-rescues", set_fields=fixed, resume_from_step=checkpoints[0]["step"]
        )
        rescued = await ended(agent, made["id"])
        assert rescued["state"] == "SUCCEEDED" and rescued["resume_uri"] == checkpoints[0]["uri"]
        assert (await agent.read("get_ledger", job=made["id"]))["exact"]

        compared = await agent.read("compare_jobs", first=job, second=made["id"], points=5)
        assert {"faults", "resume_from", "name"} <= {each["path"] for each in compared["differences"]}
        nodes = (await agent.read("list_nodes"))["nodes"]
        closed = await agent.change("cordon_node", node=nodes[0]["name"], reason="an agent tests it")
        assert closed["status"] == "cordoned"
        assert (await agent.change("uncordon_node", node=nodes[0]["name"]))["status"] == "open"
    assert served.client.get(made["id"]).digest.parameters == control.digest.parameters, "bitwise as undisturbed"
    actions = [each.action for each in served.client.audit() if each.object == made["id"]]
    assert actions == ["jobs.submit"]
