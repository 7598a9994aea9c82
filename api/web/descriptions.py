"""Descriptions in the OpenAPI document and in JSON Schemas, from the docstrings of routes and models.

Models do not carry their descriptions, because reading sources takes time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from regroup.api.schemas.field_docs import field_docs
from regroup.service.domain.layout import Layout
from regroup.service.domain.queued_job import QueuedJob

TAGS: Mapping[str, str] = {
    "jobs": "Jobs: submit, list, explain, end, suspend, resize, and the checkpoints of a job.",
    "streams": "Events, steps and output of a job, as lists or as streams of server-sent events.",
    "changes": "Notices of changes in all jobs, nodes and projects.",
    "curves": "Curves of metrics, in few points.",
    "exec": "Commands on the node of a rank, in its environment.",
    "plans": "The planner: layouts with their predicted step time and memory.",
    "probes": "Measurements of devices and links.",
    "nodes": "Nodes, their health and their jobs.",
    "drain": "Nodes that will leave.",
    "clusters": "Clusters that jobs can name.",
    "topology": "Domains of nodes and the links between them.",
    "queue": "The queue in scheduling order, and forecasts of it.",
    "projects": "Quotas, limits, budgets and defaults of projects.",
    "identities": "People and service accounts, and their roles in projects.",
    "tokens": "Tokens of the API.",
    "sessions": "Sessions of browsers, and the links that begin them.",
    "audit": "Records of changes: who changed what.",
    "usage": "Device-hours of projects, users, accelerators and jobs, and their cost.",
    "reports": "Interruptions of jobs, their causes and their cost.",
    "hooks": "Notifications of a project's events: over HTTP, to Slack and Teams, and by e-mail.",
    "secrets": "Secrets of projects, which jobs get as variables. No answer contains a value.",
    "spec": "The format of job specs.",
    "uploads": "Archives of the jobs' code.",
    "ops": "Health, version and metrics of the server.",
}
"""Tag of operations → its description."""
_VALUES = (Layout, QueuedJob)
"""Values of the service that models contain as they are."""


def describe_operations(document: Mapping[str, Any]) -> None:
    """Make the first sentence of each operation's description its summary."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["summary"] = " ".join(operation["description"].split()).partition(". ")[0].rstrip(".")


def describe_properties(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Add a description to each property of the schemas that has none.

    It is the string below the field in the model's source, or else the descriptions of the models in the field.

    Args:
        schemas: name of a model → its schema.
    """
    for model in (*_VALUES, *_models(BaseModel)):
        properties = schemas.get(model.__name__, {}).get("properties")
        if not properties:
            continue
        for name, text in field_docs(model).items():
            if name in properties:
                properties[name].setdefault("description", text)
    for schema in schemas.values():
        for shape in schema.get("properties", {}).values():
            if "description" not in shape and (text := _describe_references(shape, schemas)):
                shape["description"] = text


def _describe_references(shape: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the first paragraphs of the descriptions of the schemas that a property refers to."""
    choices: list[Mapping[str, Any]] = [shape, *shape.get("anyOf", ()), *shape.get("oneOf", ())]
    names = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
    paragraphs = [str(schemas[name].get("description", name)).partition("\n\n")[0] for name in names]
    return " Or: ".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("regroup."):
            yield model
        yield from _models(model)
