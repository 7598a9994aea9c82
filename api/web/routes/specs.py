"""/v1/spec: the published schema of a job spec, validation without submission, and predictions for its sizes."""

import asyncio
import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from regroup.api.schemas.jobs import ValidatedSpec
from regroup.api.schemas.resize import JobSize, SpecSizes
from regroup.api.web.descriptions import describe_properties
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, TheServices, TheSubmissions
from regroup.api.web.yaml_bodies import YAML_BODY
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.layouts.sizes import predict_sizes
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


@router.post("/sizes", openapi_extra=YAML_BODY)
@unconditional("calculates")
async def sizes(spec: JobSpec, submissions: TheSubmissions, services: TheServices, sender: Checker) -> SpecSizes:
    """Predict the step time and the memory of each size that a job of this spec could have. Submits nothing.

    The planner predicts them for the open nodes of the cluster, as if they were idle. `why_not` names the reason if it
    cannot model the job.
    """
    found = await predict_sizes(services.planner, await submissions.validate(spec, sender))
    listed = [JobSize.model_validate({**vars(each), "ranks": each.layout.world_size}) for each in found.sizes]
    return SpecSizes(sizes=listed, open_ranks=found.open_ranks, why_not=found.why_not)
