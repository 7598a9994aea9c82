"""/v1/topology: where the nodes are."""

from fastapi import APIRouter

from regroup.api.schemas.topology import Topology
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import TheServices

router = APIRouter(prefix="/v1/topology", tags=["topology"], responses=responses())


@router.get("")
async def get(services: TheServices) -> Topology:
    """The tree of domains that placement sees, how fast ranks reach each other, and what does not fit together."""
    return Topology.model_validate(await services.topology())
