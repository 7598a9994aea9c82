"""/v1/settings: the effective settings of the server, for operators."""

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends

from regroup.api.schemas.field_docs import field_docs
from regroup.api.schemas.reports.server_settings import ServerSetting, ServerSettings
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForCluster, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.reports.server_settings import effective_settings
from regroup.service.policy.access.roles import ClusterPermission
from regroup.service.settings import Settings

Reader = Annotated[Sender, Depends(ForCluster(ClusterPermission.SETTINGS_READ))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/settings", tags=["ops"], responses=responses())


@router.get("")
async def list_(services: TheServices, sender: Reader) -> ServerSettings:
    """List the effective settings of the server that answers, with the source of each value. Secrets are not shown."""
    meanings = _meanings()
    return ServerSettings(
        settings=[
            ServerSetting(**vars(each), description=meanings[each.name])
            for each in effective_settings(services.settings)
        ]
    )


@cache
def _meanings() -> dict[str, str]:
    return field_docs(Settings)
