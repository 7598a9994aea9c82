"""Links in the OpenAPI document lead to operations that exist, with all parts of their paths, and work."""

import re
from typing import Any

from regroup.api.app import openapi
from regroup.service.domain.topology import Node

NOT_LINKED = {
    "jobs_pin", "jobs_unpin", "jobs_checkpoint_files", "jobs_verify_checkpoint", "jobs_evidence",
    "jobs_incident", "jobs_file",
    "secrets_get", "secrets_put", "secrets_delete", "sessions_revoke",
}  # fmt: skip
"""Operations on checkpoints and incidents, which no request creates; on secrets, whose names callers choose; and on
sessions, which begin in a browser."""


def operations() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return path and entry of each operation by its id."""
    paths = openapi()["paths"].items()
    return {each["operationId"]: (path, each) for path, methods in paths for each in methods.values()}


def test_each_link_gives_every_part_of_the_path_of_an_operation() -> None:
    found, reached = operations(), set[str]()
    for _, operation in found.values():
        for answer in operation["responses"].values():
            for name, link in answer.get("links", {}).items():
                path, _ = found[link["operationId"]]
                assert name == link["operationId"]
                assert set(re.findall(r"{(\w+)}", path)) == link["parameters"].keys(), (path, link)
                reached.add(name)
    with_parts = {name for name, (path, _) in found.items() if "{" in path}
    assert with_parts - reached == NOT_LINKED


async def test_the_links_of_a_submitted_job_lead_to_it(live: Any, make_spec: Any) -> None:
    live.cluster.add_node(Node("1" * 40, "gpu-17", "10.0.0.1", cpus=4, free_cpus=4))
    submitted = await live.http.post("/v1/jobs", json=make_spec())
    found = operations()
    links = found["jobs_create"][1]["responses"]["201"]["links"]
    assert len(links) > 15
    for name in ("jobs_get", "jobs_why", "jobs_suspend", "jobs_cancel"):
        path, operation = found[name]
        assert links[name]["parameters"] == {"job": "$response.body#/id"}
        method = next(each for each, entry in openapi()["paths"][path].items() if entry == operation)
        answer = await live.http.request(method.upper(), path.format(job=submitted.json()["id"]))
        assert answer.is_success, (name, answer.text)
