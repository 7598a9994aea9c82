"""/v1/nodes/{node}/drain: drain a node, get the progress, cancel the drain."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path

from regroup.api.schemas.drains import Drain, DrainRequest
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NodeOperator, NodeReader, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.capacity import drains

NodeReference = Annotated[str, Path(description="Name or id of a node", max_length=256)]
router = APIRouter(
    route_class=OperationRoute, prefix="/v1/nodes/{node}", tags=["drain"], responses=responses("conflict")
)


@router.post("/drain", status_code=202, responses=responses("conflict", "body_too_large", "malformed_json"))
async def start(node: NodeReference, request: DrainRequest, services: TheServices, sender: NodeOperator) -> Drain:
    """Drain a node before a deadline.

    No new rank is placed on the node. Each job on it continues on another node from its current step. If no other node
    has capacity, the job saves its last step and queues. A drain does not count as a failure. `moves` predicts this for
    each job, also in a dry run.
    """
    started = await drains.drain_node(
        services.store,
        services.cluster,
        services.drain_predictor,
        node,
        also=request.also,
        deadline_s=request.deadline_s,
        reason=request.reason,
        now=services.clock(),
        author=sender.author,
    )
    return _drain(started, sender)


@router.get("/drain")
async def get(node: NodeReference, services: TheServices, sender: NodeReader) -> Drain:
    """Get the progress of a drain, including one that Ray started. 404 if the node is not being drained."""
    found = await drains.get_drain(services.store, services.cluster, services.drain_predictor, node, services.clock())
    return _drain(found, sender)


@router.delete("/drain", status_code=204)
async def undrain(node: NodeReference, services: TheServices, sender: NodeOperator) -> None:
    """Cancel the drain of a node, so that it accepts ranks again. Jobs that have left it stay on their new nodes."""
    await drains.undrain_node(services.store, services.cluster, node, now=services.clock(), author=sender.author)


def _drain(found: drains.NodeDrain, sender: Sender) -> Drain:
    moves = [move if sender.sees(move.project) else replace(move, name=move.job_id) for move in found.moves]
    return Drain.model_validate(replace(found, moves=tuple(moves)))
