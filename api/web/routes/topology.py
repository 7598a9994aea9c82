"""/v1/topology: the topology of the cluster."""

from fastapi import APIRouter

from regroup.api.schemas.topology import Topology
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import NodeReader, TheServices

router = APIRouter(route_class=OperationRoute, prefix="/v1/topology", tags=["topology"], responses=responses())


@router.get("")
async def get(services: TheServices, sender: NodeReader) -> Topology:
    """Get the tree of domains that placement uses, the bandwidth between ranks, and inconsistencies."""
    return Topology.model_validate(await services.topology())
