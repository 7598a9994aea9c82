"""Specs in YAML over HTTP: as strict as files of the command line, with the places of invalid fields."""

from typing import Any

import pytest
import yaml

YAML = {"Content-Type": "application/yaml"}


async def post(live: Any, path: str, text: str, **headers: str) -> Any:
    return await live.http.post(path, content=text, headers={**YAML, **headers})


async def test_a_job_is_submitted_and_validated_in_yaml(live: Any, make_spec: Any) -> None:
    text = yaml.safe_dump(make_spec(name="written"))
    valid = await post(live, "/v1/spec/validate", text)
    assert valid.status_code == 200 and valid.json()["spec"]["name"] == "written"
    made = await post(live, "/v1/jobs", f"# a comment\n{text}")
    assert made.status_code == 201 and made.json()["name"] == "written"
    (same,) = (await live.http.get("/v1/jobs")).json()["jobs"]
    assert same["id"] == made.json()["id"]


async def test_an_invalid_field_has_its_place(live: Any) -> None:
    text = (
        "name: gpt\nworkload:\n  kind: builtin\n  data: {train: [/d]}\ntraining:\n  global_batch: four\ncolour: red\n"
    )
    answer = await post(live, "/v1/spec/validate", text)
    assert answer.status_code == 422 and answer.headers["Content-Type"] == "application/problem+json"
    places = {each["pointer"]: (each["line"], each["column"]) for each in answer.json()["errors"]}
    assert places["/training/global_batch"] == (6, 3) and places["/colour"][0] == 7
    assert places["/training/steps"] == (5, 1)  # the field is missing: the place of its section


@pytest.mark.parametrize(
    ("text", "status", "line", "words"),
    [
        ("name: gpt\n  bad: indent\n", 400, 2, "not a YAML spec"),
        ("name: gpt\nargs:\n  when: 2026-01-01\n", 422, 3, "a date"),
        ("name: a\nname: b\n", 422, 2, "twice"),
        ("name: !!python/object:os.system x\n", 422, 1, "tag"),
    ],
)
async def test_what_the_reader_refuses_has_its_place(live: Any, text: str, status: int, line: int, words: str) -> None:
    answer = await post(live, "/v1/jobs", text)
    assert answer.status_code == status, answer.text
    (field,) = answer.json()["errors"]
    assert field["line"] == line and words in answer.json()["detail"]


async def test_only_routes_of_specs_accept_yaml(live: Any) -> None:
    answer = await live.http.put("/v1/projects/vision", content="limit: 3\n", headers=YAML)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    large = await post(live, "/v1/jobs", "x" * 2_000_000)
    assert large.status_code == 413


async def test_a_problem_with_json_has_no_place(live: Any) -> None:
    (first, *_) = (await live.http.post("/v1/jobs", json={"name": "x"})).json()["errors"]
    assert "line" not in first and "column" not in first
