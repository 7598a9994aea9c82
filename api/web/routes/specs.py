"""/v1/spec: the published schema of a job spec, and validation without submission."""

import asyncio
import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from regroup.api.schemas.jobs import ValidatedSpec
from regroup.api.web.descriptions import describe_properties
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, TheSubmissions
from regroup.api.web.yaml_bodies import YAML_BODY
from regroup.service.operations.access.authorization import Sender
from regroup.service.spec.job import JobSpec

router = APIRouter(
    route_class=OperationRoute,
    prefix="/v1/spec",
    tags=["spec"],
    responses=responses("malformed_json", "body_too_large"),
)
Reader = Annotated[Sender, Depends(ForEveryone("shows the schema, which is public"))]
Checker = Annotated[Sender, Depends(ForEveryone("needs permissions in the project of the spec"))]


@functools.cache
def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job spec, with a description of every property."""
    schema = JobSpec.model_json_schema()
    describe_properties({"JobSpec": schema, **schema["$defs"]})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@router.get("/schema")
async def schema(sender: Reader) -> dict[str, Any]:
    """Get the JSON Schema of a job spec, for example for editors."""
    return await asyncio.to_thread(spec_schema)


@router.post("/validate", openapi_extra=YAML_BODY)
@unconditional("validates")
async def validate(spec: JobSpec, submissions: TheSubmissions, sender: Checker) -> ValidatedSpec:
    """Validate a spec as a submission does, and return it with its defaults and its layout. Submits nothing.

    The name may be that of another job, and the code archive may be missing.
    """
    valid = await submissions.validate(spec, sender)
    return ValidatedSpec(spec=valid, ladder=list(valid.ladder))
