"""Single tools: the cases that the tasks of an operator do not reach."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from regroup.api.mcp.calls.schema_text import shorten
from regroup.api.mcp.tools.job_changes import with_changes
from regroup.service.domain.errors import SpecError
from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node
from tests.support.servers.mcp_agents import Agent, agent_over_http, mcp_over_http


@asynccontextmanager
async def connected(live: Any) -> AsyncIterator[Agent]:
    async with mcp_over_http(live.url) as url, agent_over_http(url, live.token) as agent:
        yield agent


def node(name: str, rack: str, zone: str = "z") -> Node:
    labels = {DEFAULT_LABELS[Level.RACK]: rack, DEFAULT_LABELS[Level.ZONE]: zone}
    return Node(f"{name:0<40}", name, "10.0.0.1", labels=labels, cpus=4, free_cpus=4)


# ------------------------------------------------------------ pure parts


def test_fields_of_a_spec_are_set_and_removed_by_path() -> None:
    spec = {"name": "gpt", "training": {"steps": 10, "schedule": {"name": "cosine"}}, "env": {"A": "1"}}
    fields = {
        "training.steps": 20,
        "training.schedule": None,
        "env.A": None,
        "recovery.window": 1,
        "none.x": None,
    }
    changed = with_changes(spec, fields)
    assert changed == {
        "name": "gpt", "training": {"steps": 20}, "env": {}, "recovery": {"window": 1}, "none": {},
    }  # fmt: skip
    assert spec["training"] == {"steps": 10, "schedule": {"name": "cosine"}}, "the given spec stays as it is"


def test_a_path_through_a_value_is_refused() -> None:
    with pytest.raises(SpecError, match="'name' is not a mapping"):
        with_changes({"name": "gpt"}, {"name.first": "x"})


def test_a_schema_loses_annotations_and_keeps_fields_of_their_names() -> None:
    schema = {
        "title": "T", "type": "object", "properties": {"title": {"title": "Title", "type": "string"}},
        "$defs": {"title": {"anyOf": [{"title": "X", "const": 1}]}},
    }  # fmt: skip
    assert shorten(schema) == {
        "type": "object", "properties": {"title": {"type": "string"}}, "$defs": {"title": {"anyOf": [{"const": 1}]}},
    }  # fmt: skip


# ------------------------------------------------------------ jobs


async def test_contradicting_sources_of_a_job_are_refused(live: Any) -> None:
    job = (await live.submit())["id"]
    async with connected(live) as agent:
        error = await agent.refused("resubmit_job", job=job, resume_from_step=1, resume_from_latest=True)
        assert [each["path"] for each in error["fields"]] == ["resume_from_latest"]
        error = await agent.refused("resubmit_job", job=job, set_fields={"training.stepz": 5})
        assert error["code"] == "invalid_spec" and "training.stepz" in [each["path"] for each in error["fields"]]


async def test_a_name_that_belongs_to_another_job_since_the_preview_is_refused(live: Any) -> None:
    job = (await live.submit(name="gpt"))["id"]
    async with connected(live) as agent:
        arguments = {"job": "gpt", "name": "again"}
        confirm = (await agent.preview("resubmit_job", **arguments))["confirm"]
        await live.http.post(f"/v1/jobs/{job}/cancel")
        await live.submit(name="gpt")
        error = await agent.refused("resubmit_job", **arguments, confirm=confirm)
        assert error["code"] == "precondition_failed"
    assert len((await live.http.get("/v1/jobs")).json()["jobs"]) == 2


async def test_a_job_that_trains_can_be_changed_while_it_makes_progress(live: Any, job_events: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    async with connected(live) as agent:
        confirm = (await agent.preview("suspend_job", job=job))["confirm"]
        await live.report(job, job_events.step(1, 2), job_events.step(1, 3))
        assert (await agent.read("suspend_job", job=job, confirm=confirm))["is_done"]
    assert "suspend" in (await live.http.get(f"/v1/jobs/{job}")).json()["intents"]


async def test_the_end_of_a_long_output_is_read(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    live.cluster.logs[job, 1, 0, "stdout"] = "x" * (2 * 2**20 + 17) + "é the end"
    async with connected(live) as agent:
        log = await agent.read("read_log", job=job, from_end=True, max_bytes=100)
        assert log["text"].endswith("é the end") and log["next_offset"] == 2 * 2**20 + 17 + 10
        error = await agent.refused("read_log", job=job, rank=9)
        assert error["code"] == "not_found"


async def test_slow_ranks_of_an_earlier_generation_are_not_reported(live: Any, job_events: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    slow = {"rank": 0, "node": "a", "work_s": 0.9, "usual_s": 0.3, "is_crowded": False}
    await live.report(job, ("stragglers", 1, {"ranks": [slow]}))
    async with connected(live) as agent:
        assert (await agent.read("find_slow_ranks", job=job))["slow"] == [slow]
        await live.report(job, job_events.formed(2, 1))
        found = await agent.read("find_slow_ranks", job=job)
        assert found["slow"] == [] and found["reported_at"] is None
        error = await agent.refused("get_stacks", job=job)
        assert error["code"] == "not_found"


async def test_a_file_that_the_evidence_does_not_have_is_named(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    incident = {"id": "i1", "cause": "c", "generation": 1, "at_step": 2, "times": {}, "durations": {}}
    await live.report(job, ("incident", 1, incident))
    async with connected(live) as agent:
        error = await agent.refused("read_evidence", job=job, number=1, file="../secrets")
        assert error["code"] == "not_found" and "summary.txt" in error["message"]
        assert (await agent.refused("read_evidence", job=job, number=7))["code"] == "not_found"


# ------------------------------------------------------------ nodes


async def test_nodes_are_listed_by_status_in_pages(live: Any) -> None:
    for number in range(5):
        live.cluster.add_node(node(f"n-{number}", "r"))
    await live.http.post("/v1/nodes/n-1/cordon", json={"reason": "fan"})
    async with connected(live) as agent:
        first = await agent.read("list_nodes", statuses=["open"], limit=2)
        assert [each["name"] for each in first["nodes"]] == ["n-0", "n-2"] and first["total"] == 4
        rest = await agent.read("list_nodes", statuses=["open"], after="n-2")
        assert [each["name"] for each in rest["nodes"]] == ["n-3", "n-4"]
        assert first["by_status"] == {"open": 4, "cordoned": 1}
        assert (await agent.read("list_nodes", has_jobs=True))["nodes"] == []
        assert (await agent.read("get_node", node="n-1"))["health"]["status"] == "cordoned"
        assert "n-0" in (await agent.refused("get_node", node="n-9"))["message"]


async def test_a_domain_must_be_named_without_doubt(live: Any) -> None:
    for name, zone in (("a-1", "east"), ("b-1", "west")):
        live.cluster.add_node(node(name, "rack-1", zone))
    async with connected(live) as agent:
        error = await agent.refused("drain_domain", level="rack", domain="rack-2")
        assert error["code"] == "not_found" and "east/rack-1" in error["message"]
        error = await agent.refused("drain_domain", level="rack", domain="rack-1")
        assert "2 domains have the name 'rack-1'; use a path" in error["message"]
        done = await agent.change("drain_domain", level="rack", domain="east/rack-1")
        assert [each["node"] for each in done["drains"]] == ["a-1"]
        assert (await agent.read("get_drain", node="a-1"))["by"] == "request"
        assert (await agent.change("undrain_node", node="a-1"))["node"] == "a-1"
        assert (await agent.refused("get_drain", node="a-1"))["code"] == "not_found"


async def test_a_node_that_refuses_its_drain_does_not_stop_the_others(live: Any) -> None:
    live.cluster.add_node(node("a-1", "rack-1"))
    live.cluster.add_node(dataclasses.replace(node("a-2", "rack-1"), id="2" * 40))
    live.cluster.add_node(dataclasses.replace(node("a-2", "rack-9"), id="3" * 40))  # the name a-2 is ambiguous
    async with connected(live) as agent:
        preview = await agent.preview("drain_domain", level="rack", domain="rack-1")
        assert [each["node"] for each in preview["result"]["drains"]] == ["a-1"]
        assert "use an id instead" in preview["result"]["refused"]["a-2"]


async def test_a_domain_that_changed_since_the_preview_is_not_drained(live: Any) -> None:
    live.cluster.add_node(node("a-1", "rack-1"))
    async with connected(live) as agent:
        confirm = (await agent.preview("drain_domain", level="rack", domain="rack-1"))["confirm"]
        live.cluster.add_node(node("a-2", "rack-1"))
        error = await agent.refused("drain_domain", level="rack", domain="rack-1", confirm=confirm)
        assert error["code"] == "precondition_failed"
    assert (await live.http.get("/v1/nodes/a-1/drain")).status_code == 404
