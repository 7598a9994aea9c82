"""/v1/nodes/{node}/drain: have a node empty, see how far that is, take it back."""

from typing import Annotated

from fastapi import APIRouter, Path

from regroup.api.schemas.drains import Drain, DrainRequest
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ACTOR, TheServices
from regroup.service.operations import drains

NodeReference = Annotated[str, Path(description="name or id of a node", max_length=256)]
router = APIRouter(prefix="/v1/nodes/{node}", tags=["drain"], responses=responses("conflict"))


@router.post("/drain", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def start(node: NodeReference, request: DrainRequest, services: TheServices) -> Drain:
    """Have a node empty before a deadline. Nothing new is placed there; each job that is there goes on on another node
    from where it stands, and where there is none it saves its last step and queues. Nothing of it counts as a failure.
    """
    started = await drains.drain_node(
        services.store,
        services.cluster,
        node,
        deadline_s=request.deadline_s,
        reason=request.reason,
        now=services.clock(),
        actor=ACTOR,
    )
    return Drain.model_validate(started)


@router.get("/drain")
async def get(node: NodeReference, services: TheServices) -> Drain:
    """How far a drain is, also one that Ray itself has begun. 404 if the node is not drained."""
    return Drain.model_validate(await drains.get_drain(services.store, services.cluster, node))


@router.delete("/drain", status_code=204)
async def undrain(node: NodeReference, services: TheServices) -> None:
    """Let a node be used again. What has left it stays where it is."""
    await drains.undrain_node(services.store, services.cluster, node)
