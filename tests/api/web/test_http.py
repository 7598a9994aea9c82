"""Concerns of all requests: problems, limits, allowed hosts, health."""

import json
from pathlib import Path

import pytest

from regroup.api.app import openapi
from regroup.service.domain.errors import UnavailableError


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("DELETE", "/v1/jobs", 405, "method_not_allowed"),
        ("GET", "/v1/jobs/nobody", 404, "not_found"),
        ("GET", "/v1/jobs?page_size=0", 422, "invalid_request"),
        ("GET", "/v1/jobs?name=%00", 400, "bad_request"),
        ("GET", "/v1/jobs/a%00b", 400, "bad_request"),
        ("GET", "/v1/jobs/nobody/events", 404, "not_found"),
        ("GET", "/v1/jobs/nobody/events?follow=true", 404, "not_found"),
    ],
)
async def test_every_error_is_a_problem(live, method, path, status, code):
    answer = await live.http.request(method, path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert (problem["status"], problem["code"], problem["type"]) == (status, code, f"urn:regroup:problem:{code}")
    if status == 405:
        assert "GET" in answer.headers["Allow"]


async def test_a_body_that_is_not_json(live):
    headers = {"Content-Type": "application/json"}
    answer = await live.http.post("/v1/jobs", content=b"{", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")
    assert (await live.http.post("/v1/jobs", content=b"[]", headers=headers)).status_code == 422
    yaml = await live.http.post("/v1/jobs", content=b"name: gpt", headers={"Content-Type": "application/yaml"})
    assert (yaml.status_code, yaml.json()["code"]) == (422, "invalid_spec")
    for body, kind in ((b"name: gpt", "text/yaml"), (b"{}", "text/plain")):
        answer = await live.http.post("/v1/jobs", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 415, (
            "a page can send text/plain to another site without a CORS preflight, so it is never parsed as JSON"
        )


async def test_a_body_that_is_too_large(live):
    headers = {"Content-Type": "application/json"}
    whole = await live.http.post("/v1/jobs", content=b" " * (2**20 + 1), headers=headers)
    assert (whole.status_code, whole.json()["code"]) == (413, "body_too_large")

    async def pieces():
        for _ in range(20):
            yield b" " * 65536

    chunked = await live.http.post("/v1/jobs", content=pieces(), headers=headers)
    assert (chunked.status_code, chunked.json()["code"]) == (413, "body_too_large")


async def test_health(live):
    assert (await live.http.get("/livez")).json()["status"] == "ok"
    ready = await live.http.get("/readyz?verbose=true")
    assert (ready.status_code, set(ready.json()["checks"])) == (200, {"database", "cluster"})
    live.cluster.reachable = False
    ready = await live.http.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]) == (503, {"cluster": "the cluster does not answer"})
    assert (await live.http.get("/version")).json()["api"] == "v1"
    assert (await live.http.get("/metrics")).headers["Content-Type"].startswith("text/plain")


async def test_an_internal_error_reveals_no_details(live, monkeypatch):
    async def broken(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(live.store, "find_job", broken)
    answer = await live.http.get("/v1/jobs/gpt")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text


async def test_an_unavailable_database(live, monkeypatch):
    async def away(*_: object) -> None:
        raise UnavailableError("the database does not answer")

    monkeypatch.setattr(live.store, "find_job", away)
    answer = await live.http.get("/v1/jobs/gpt")
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "unavailable", "1")


async def test_spec_schema_and_validation(live, make_spec):
    schema = (await live.http.get("/v1/spec/schema")).json()
    assert schema["title"] == "JobSpec" and "$schema" in schema
    answer = (
        await live.http.post("/v1/spec/validate", json=make_spec(layout={"dp": {"min": 1, "target": 2, "max": 2}}))
    ).json()
    assert [layout["dp_shard"] for layout in answer["ladder"]] == [1, 2]
    assert answer["spec"]["seed"] == 0


def test_the_committed_openapi_description_is_current():
    committed = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
    assert committed == json.loads(json.dumps(openapi())), "run make docs"


def test_no_name_in_the_description_contains_a_module_path():
    """Check that no two models share a name: names with modules would change when a file is moved."""
    named = openapi()["components"]["schemas"]
    assert [name for name in named if "__" in name] == []
