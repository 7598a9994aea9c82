"""Requests are read strictly on all routes: bodies, content types and parameters."""

import json
import time
from typing import Any

import pytest

from regroup.api.app import openapi
from tests.support.checks.schema_bounds import unbounded

JSON = {"Content-Type": "application/json"}
PROBLEM = "application/problem+json"
FREE_FORM = {"args", "defaults"}


def problem_of(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, PROBLEM), answer.text
    found: dict[str, Any] = answer.json()
    assert found["code"] == code, found
    return found


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/spec/validate"])
@pytest.mark.parametrize(
    ("body", "pointer", "message"),
    [
        ('{"name": "a",\n "args": {"a": NaN}}', "/args/a", "line 2, column 16: NaN is not a finite number"),
        ('{"args": {"a": [1, -Infinity]}}', "/args/a/1", "-Infinity is not a finite number"),
        ('{"training": {"optimizer": {"lr": 1e400}}}', "/training/optimizer/lr", "the number 1e400 is too large"),
        (
            '{"name": "a", "name": "b"}',
            "/name",
            "the key appears twice in one mapping; the first is at line 1, column 2",
        ),
        ('{"resources": {"cpus": 1' + "0" * 309 + "}}", "/resources/cpus", "at most 64 characters"),
        ('{"env": {"A": "x\\u0000y"}}', "/env/A", "NUL character"),
        ('{"owner": "\\ud800"}', "/owner", "lone surrogate"),
        ('{"args": ' + '{"a":' * 3000, "/args/a/a", "nested at most 64 levels deep"),
        ('{"args": {"a": [' + "0," * 30_000 + "0]}}", "/args/a/19", "at most 20,000 values"),
    ],
)
async def test_what_a_person_cannot_have_meant_is_refused_by_field(live, path, body, pointer, message):
    started_s = time.monotonic()
    found = problem_of(await live.http.post(path, content=body, headers=JSON), 422, "invalid_spec")
    (field,) = found["errors"]
    assert field["pointer"].startswith(pointer) and message in field["detail"]
    assert time.monotonic() - started_s < 5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "line 1, column 2: the text ends, but a key in double quotes or } is missing"),
        (b'{"name": "a",}', "line 1, column 14: expected a key in double quotes, but found }"),
        (b"name: gpt", "line 1, column 1: unexpected 'n'"),
        (b'{"name": "\xff"}', "the byte 0xff is not UTF-8"),
        ('{"name": "a"}'.encode("utf-16"), "UTF-16"),
    ],
)
async def test_a_body_that_is_not_json_is_refused_by_line_and_column(live, body, message):
    found = problem_of(await live.http.post("/v1/jobs", content=body, headers=JSON), 400, "malformed_json")
    assert message in found["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "text/yaml"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)
async def test_a_body_without_the_type_of_json_is_refused_with_the_accepted_form(live, make_spec, headers):
    answer = await live.http.post("/v1/jobs", content=json.dumps(make_spec()).encode(), headers=headers)
    found = problem_of(answer, 415, "unsupported_media_type")
    assert "Content-Type: application/json" in found["detail"] and "--data-binary @spec.json" in found["detail"]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=UTF-8", "application/merge-patch+json"]
)
async def test_json_types_are_accepted(live, make_spec, kind):
    body = json.dumps(make_spec()).encode()
    assert (await live.http.post("/v1/spec/validate", content=body, headers={"Content-Type": kind})).status_code == 200


async def test_a_missing_body_is_named(live):
    found = problem_of(await live.http.post("/v1/jobs"), 422, "invalid_spec")
    assert found["detail"] == "the body: is required"


async def test_validation_refuses_what_a_submission_refuses(live, make_spec):
    for fields in (
        {"faults": [{"at": {"rank": 0, "step": 1}}]},
        {"disable_detectors": ["hang"]},
        {"depends_on": ["absent"]},
        {"resume_from": "absent@latest"},
        {"storage_uri": "here"},
        {"layout": {"dp": {"min": 1, "target": 1, "max": 2_000_000}}},
        {"env": {"A=B": "1"}},
        {"labels": {"a": 1}},
    ):
        submitted = await live.http.post("/v1/jobs", json=make_spec(**fields))
        validated = await live.http.post("/v1/spec/validate", json=make_spec(**fields))
        assert submitted.status_code in (403, 422) and validated.status_code == submitted.status_code, fields
        assert {**validated.json(), "instance": ""} == {**submitted.json(), "instance": ""}


ROUTES = [
    (method.upper(), path)
    for path, methods in openapi()["paths"].items()
    for method, operation in methods.items()
    if operation
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_refuses_an_unknown_parameter(live, make_spec, method, path):
    job = await live.submit()
    names = {
        "job": job["id"],
        "step": "1",
        "number": "1",
        "name": "n0",
        "node": "n0",
        "subject": "ana",
        "hook": "hook_1",
        "delivery": "1",
        "secret": "hf-token",
        "session": "ses_1",
        "token": "t1",
        "upload": f"{'0' * 64}-1",
    }
    url = path.format_map(names)
    answer = await live.http.request(method, f"{url}?stat=RUNNING", headers={"Upload-Offset": "0"})
    assert answer.status_code == 422, answer.text
    wrong = {field["pointer"]: field["detail"] for field in answer.json()["errors"]}
    assert wrong["stat"].startswith("unknown parameter; parameters of this request: ")


async def test_a_parameter_is_given_once_unless_it_is_a_list(live):
    found = problem_of(await live.http.get("/v1/jobs?page_size=1&page_size=2"), 422, "invalid_request")
    assert found["errors"][0] == {"pointer": "page_size", "detail": "can be given only once", "value": "2"}
    assert (await live.http.get("/v1/jobs?state=RUNNING&state=FAILED")).status_code == 200
    found = problem_of(await live.http.get("/v1/jobs?stat=RUNNING"), 422, "invalid_request")
    assert "label, name, page_size, page_token, project, state" in found["detail"]


async def test_a_route_without_a_body_refuses_one(live):
    job = await live.submit()
    answer = await live.http.post(f"/v1/jobs/{job['id']}/cancel", json={"reason": "not wanted"})
    assert "this request takes no body" in problem_of(answer, 422, "invalid_spec")["detail"]
    assert (await live.http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "QUEUED"
    assert (await live.http.post(f"/v1/jobs/{job['id']}/cancel")).status_code == 202


async def test_an_invalid_parameter_is_named_without_its_type(live):
    found = problem_of(await live.http.get("/v1/jobs?state=SLEEPING"), 422, "invalid_request")
    assert found["errors"][0]["pointer"] == "state" and found["errors"][0]["detail"].startswith("must be 'QUEUED'")


async def test_a_stored_job_with_the_widest_ladder_harms_no_request(live, make_spec):
    wide = {"name": "wide", "workload": {"kind": "script", "entrypoint": "/a.py"},
            "layout": {"dp": {"min": 1, "target": 1, "max": 131_072}}}  # fmt: skip
    started_s = time.monotonic()
    job = await live.http.post("/v1/jobs", json=wide)
    assert job.status_code == 201
    for path in ("/livez", f"/v1/jobs/{job.json()['id']}", f"/v1/jobs/{job.json()['id']}/why", "/metrics"):
        assert (await live.http.get(path)).status_code == 200
    assert time.monotonic() - started_s < 10


def test_every_field_of_a_request_has_a_bound():
    described = openapi()
    schemas = described["components"]["schemas"]
    names = {
        content["schema"]["$ref"].rpartition("/")[2]
        for methods in described["paths"].values()
        for operation in methods.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "$ref" in content["schema"]
    }
    assert len(names) > 5
    reached, pending = set[str](), set(names)
    while pending:
        name = pending.pop()
        reached.add(name)
        text = json.dumps(schemas[name])
        pending |= {each for each in schemas if f'"#/components/schemas/{each}"' in text} - reached
    assert [each for name in sorted(reached) for each in unbounded(schemas[name], name, FREE_FORM)] == []


def test_every_parameter_has_a_bound():
    found = [
        place
        for methods in openapi()["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        for place in unbounded(parameter["schema"], parameter["name"])
    ]
    assert found == []
