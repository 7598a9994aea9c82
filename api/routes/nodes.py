"""/v1/nodes: which there are, whether they are trusted with ranks; closing and opening them."""

from typing import Annotated

from fastapi import APIRouter, Body, Path

from regroup.api.nodes import Node, NodeList, NodeOrder, node
from regroup.api.problems import responses
from regroup.api.routes.access import ACTOR, TheServices

NodeName = Annotated[str, Path(description="its name, or Ray's name or id of now", max_length=253)]
Order = Annotated[NodeOrder, Body()]
router = APIRouter(prefix="/v1/nodes", tags=["nodes"], responses=responses())


@router.get("")
async def list_(services: TheServices) -> NodeList:
    """Nodes that take ranks, with what is free, the jobs there, and why nothing new is placed on one."""
    return NodeList(nodes=[node(state) for state in await services.nodes.all()])


@router.post("/{name}/cordon", responses=responses("body_too_large", "malformed_json"))
async def cordon(name: NodeName, services: TheServices, order: Order = NodeOrder()) -> Node:  # noqa: B008
    """Place nothing new on a node until it is uncordoned. What runs there runs on."""
    return node(await services.nodes.cordon(name, order.why, actor=ACTOR))


@router.post("/{name}/uncordon", responses=responses("body_too_large", "malformed_json"))
async def uncordon(name: NodeName, services: TheServices, order: Order = NodeOrder()) -> Node:  # noqa: B008
    """Trust a node again, whether it was cordoned or quarantined; what happened before is forgiven."""
    return node(await services.nodes.uncordon(name, order.why, actor=ACTOR))
