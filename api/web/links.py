"""Links in the OpenAPI document: the requests that the answer of another one makes possible (OpenAPI 3.1, Link Object).

`POST /v1/jobs` answers with an id, which `GET /v1/jobs/{job}` and others need. Clients that are generated from the
document, and tests, follow the links.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PART = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class LinkSource:
    """An answer that contains the values of path parameters."""

    operation: str
    """Id of the operation."""
    parameters: Mapping[str, str]
    """Path parameter → runtime expression of its value."""
    below: str
    """Prefix of the paths of the linked operations."""


SOURCES: Sequence[LinkSource] = (
    LinkSource("jobs_create", {"job": "$response.body#/id"}, "/v1/jobs/{job}"),
    LinkSource("jobs_list", {"job": "$response.body#/jobs/0/id"}, "/v1/jobs/{job}"),
    LinkSource("probes_create", {"job": "$response.body#/id"}, "/v1/jobs/{job}"),
    LinkSource("nodes_list", {"name": "$response.body#/nodes/0/name"}, "/v1/nodes/{name}"),
    LinkSource("nodes_list", {"node": "$response.body#/nodes/0/name"}, "/v1/nodes/{node}"),
    LinkSource("drain_start", {"node": "$request.path.node"}, "/v1/nodes/{node}/drain"),
    LinkSource("projects_put", {"name": "$request.path.name"}, "/v1/projects/{name}"),
    LinkSource(
        "identities_put_member",
        {"name": "$request.path.name", "subject": "$request.path.subject"},
        "/v1/projects/{name}/members/{subject}",
    ),
    LinkSource("identities_create", {"subject": "$response.body#/subject"}, "/v1/identities/{subject}"),
    LinkSource("tokens_create", {"token": "$response.body#/id"}, "/v1/tokens/{token}"),
    LinkSource(
        "hooks_create",
        {"name": "$request.path.name", "hook": "$response.body#/id"},
        "/v1/projects/{name}/hooks/{hook}",
    ),
    LinkSource(
        "hooks_test",
        {"name": "$request.path.name", "hook": "$request.path.hook", "delivery": "$response.body#/id"},
        "/v1/projects/{name}/hooks/{hook}/deliveries/{delivery}",
    ),
    LinkSource("uploads_create", {"upload": "$response.body#/id"}, "/v1/uploads/{upload}"),
)


def add_links(document: Mapping[str, Any]) -> None:
    """Add links to the successful answers of the operations in `SOURCES`.

    A link leads to each operation below its prefix whose path has exactly these parameters.
    """
    operations = list(_operations(document))
    for source in SOURCES:
        (origin,) = (operation for _, operation in operations if operation["operationId"] == source.operation)
        links = {
            operation["operationId"]: {"operationId": operation["operationId"], "parameters": dict(source.parameters)}
            for path, operation in operations
            if path.startswith(source.below) and set(_PART.findall(path)) == set(source.parameters)
        }
        for status, answer in origin["responses"].items():
            if status.startswith("2"):
                answer.setdefault("links", {}).update(links)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the entry of each operation."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation
