"""/v1/clusters: the clusters of the server."""

from fastapi import APIRouter

from regroup.api.schemas.nodes import ClusterList, ClusterState
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NodeReader, TheServices
from regroup.service.cluster_state.clusters import ClusterState as Found

router = APIRouter(route_class=OperationRoute, prefix="/v1/clusters", tags=["clusters"], responses=responses())


@router.get("")
async def list_(services: TheServices, sender: NodeReader) -> ClusterList:
    """List the clusters that jobs can name, with their capacity, and the reason why one does not answer."""
    return ClusterList(clusters=[_cluster(found) for found in await services.clusters()])


def _cluster(found: Found) -> ClusterState:
    nodes = found.nodes
    return ClusterState(
        name=found.name,
        is_default=found.is_default,
        answers=not found.problem,
        problem=found.problem,
        nodes=len(nodes),
        cpus=sum(node.cpus for node in nodes),
        free_cpus=sum(node.free_cpus for node in nodes),
        gpus=sum(node.gpus for node in nodes),
        free_gpus=sum(node.free_gpus for node in nodes),
    )
