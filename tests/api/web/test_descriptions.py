"""Every operation, parameter and property is described, in the OpenAPI document and in the schema of the spec."""

from typing import Any

import pytest

from regroup.api.app import openapi
from regroup.api.web.routes.specs import spec_schema


def schemas_of_the_spec() -> dict[str, Any]:
    whole = spec_schema()
    return {"JobSpec": whole, **whole["$defs"]}


@pytest.mark.parametrize("of", ["api", "spec"])
def test_every_property_is_described_by_a_sentence(of: str) -> None:
    schemas = openapi()["components"]["schemas"] if of == "api" else schemas_of_the_spec()
    properties = {
        f"{name}.{key}": shape.get("description", "")
        for name, schema in schemas.items()
        for key, shape in schema.get("properties", {}).items()
    }
    assert len(properties) > 150
    assert [name for name, text in properties.items() if len(text) < 10] == []
    assert [name for name, text in properties.items() if "\n" in text] == []


def test_the_text_is_the_one_in_the_source_or_that_of_the_model() -> None:
    schemas = openapi()["components"]["schemas"]
    job = schemas["Job"]["properties"]
    assert job["version"]["description"] == "Number of the newest event."
    assert job["digest"]["description"] == "Digests of the result."
    workload = schemas["JobSpec"]["properties"]["workload"]["description"]
    assert workload.startswith("The built-in trainer") and workload.count(" Or: ") == 3


def test_every_operation_has_a_summary_and_described_parameters_and_tags() -> None:
    document = openapi()
    tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert [each["operationId"] for each in operations if not 3 <= len(each["summary"].split()) <= 20] == []
    assert {tag for each in operations for tag in each["tags"]} == tags
    assert [
        (each["operationId"], parameter["name"])
        for each in operations
        for parameter in each.get("parameters", [])
        if not (parameter.get("description") or parameter["schema"].get("description"))
    ] == []
