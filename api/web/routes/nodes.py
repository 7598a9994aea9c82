"""/v1/nodes: list nodes with their health, cordon and uncordon them."""

from typing import Annotated

from fastapi import APIRouter, Body, Path

from regroup.api.schemas.nodes import Node, NodeFault, NodeHealth, NodeJob, NodeList, NodeOrder
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NodeOperator, NodeReader, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.assembly.services import Services
from regroup.service.operations.nodes import NodeState

NodeName = Annotated[str, Path(description="Name of the node, or its current name or id in Ray", max_length=253)]
Order = Annotated[NodeOrder, Body()]
router = APIRouter(route_class=OperationRoute, prefix="/v1/nodes", tags=["nodes"], responses=responses())


@router.get("")
async def list_(services: TheServices, sender: NodeReader) -> NodeList:
    """List the nodes for ranks, with free capacity, jobs, and the reason why a node accepts no new ranks.

    Jobs of projects that you do not see are left out.
    """
    return NodeList(nodes=[_node(state, sender, services) for state in await services.nodes.list_nodes()])


@router.post("/{name}/cordon", responses=responses("body_too_large", "malformed_json"))
async def cordon(
    name: NodeName,
    services: TheServices,
    sender: NodeOperator,
    order: Order = NodeOrder(),  # noqa: B008
) -> Node:
    """Place no new ranks on a node until it is uncordoned. Running jobs continue."""
    return _node(await services.nodes.cordon(name, order.reason, author=sender.author), sender, services)


@router.post("/{name}/uncordon", responses=responses("body_too_large", "malformed_json"))
async def uncordon(
    name: NodeName,
    services: TheServices,
    sender: NodeOperator,
    order: Order = NodeOrder(),  # noqa: B008
) -> Node:
    """End the cordon or quarantine of a node and clear its faults."""
    return _node(await services.nodes.uncordon(name, order.reason, author=sender.author), sender, services)


def _node(state: NodeState, sender: Sender, services: Services) -> Node:
    there, health = state.node, state.health
    return Node(
        name=state.name,
        cluster=services.cluster_names.shown(there.cluster) if there else None,
        node_id=there.id if there else None,
        node_name=there.name if there else None,
        address=there.address if there else None,
        cpus=there.cpus if there else 0,
        free_cpus=there.free_cpus if there else 0,
        gpus=there.gpus if there else 0,
        free_gpus=there.free_gpus if there else 0,
        memory_bytes=there.memory_bytes if there else 0,
        free_memory_bytes=there.free_memory_bytes if there else 0,
        is_draining=there.is_draining if there else False,
        jobs=[NodeJob.model_validate(job) for job in state.jobs if sender.sees(job.project)],
        spare_for=state.spare_for if sender.sees(state.spare_for) else "",
        health=NodeHealth(
            status=state.status,
            score=health.score,
            why=state.closed_reason,
            until_s=(health.quarantined_until_s or health.fenced_until_s) if health.cordon is None else None,
            cordoned_by=health.cordon.actor if health.cordon else None,
            cordoned_at_s=health.cordon.time_s if health.cordon else None,
            quarantines=health.quarantines,
            faults=[NodeFault.model_validate(fault) for fault in health.faults],
        ),
        etag=state.etag,
    )
