"""Examples in the OpenAPI document: every operation that needs a value has one, and a server accepts it."""

import re
from typing import Any

from regroup.api.app import openapi
from regroup.api.web.examples import BODIES
from regroup.service.domain.topology import Node


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in openapi()["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_part_of_a_path_and_every_body_has_an_example() -> None:
    bodies = set[str]()
    for method, path, operation in operations():
        parts = [each for each in operation.get("parameters", ()) if each["in"] == "path"]
        assert {each["name"] for each in parts} == set(re.findall(r"{(\w+)}", path))
        queries = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
        required = [each for each in queries if each.get("required")]
        assert all(each["example"] is not None for each in (*parts, *required)), (method, path)
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            bodies.add(operation["operationId"])
            assert "example" in operation["requestBody"]["content"]["application/json"], (method, path)
    assert bodies == BODIES.keys()


async def test_a_server_understands_the_examples(live: Any) -> None:
    live.cluster.add_node(Node("1" * 40, "gpu-17", "10.0.0.1", cpus=4, free_cpus=4))
    training = {"global_batch": 16, "micro_batch": 1, "sequence": 16, "steps": 10}
    await live.submit(name="gpt", layout={"dp": {"min": 4, "target": 8, "max": 16}}, training=training)
    for method, path, operation in operations():
        examples = {each["name"]: each["example"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        accepts_trial = any(each["name"] == "dry_run" for each in operation.get("parameters", ()))
        params: dict[str, Any] = {
            each["name"]: each["example"]
            for each in operation.get("parameters", ())
            if each["in"] == "query" and "example" in each
        }
        params |= {"dry_run": True} if accepts_trial else {}
        if operation["operationId"] in ("exec_run", "uploads_create", "uploads_append") or operation["tags"] == ["ops"]:
            continue  # these would run or store something, or have no values
        answer = await live.http.request(method.upper(), path.format(**examples), json=body, params=params)
        # Objects of the examples may be missing or in another state, but the requests are well formed.
        assert answer.status_code not in (400, 405, 415, 422) and answer.status_code < 500, (method, path, answer.text)
