"""Routes for the operators of the server: health, version, metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST

from regroup import __version__
from regroup.api.schemas.server import Health, SignIn, Version
from regroup.api.web.operation import OperationRoute
from regroup.api.web.presenters import server_links
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import TOKEN, ForCluster, ForEveryone, TheServices
from regroup.service.domain.errors import RegroupError
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.assembly.services import Services
from regroup.service.policy.access.roles import ClusterPermission

Verbose = Annotated[bool, Query(description="Report all checks, also those that pass")]
VersionReader = Annotated[Sender, Depends(ForEveryone("shows the version of the server"))]
MetricsReader = Annotated[Sender, Depends(ForCluster(ClusterPermission.METRICS))]
_CHECK_TIMEOUT_S = 5.0
router = APIRouter(route_class=OperationRoute, tags=["ops"], responses=responses())


@router.get("/livez", responses={503: {"model": Health, "description": "The process must be restarted"}})
async def livez(services: TheServices, response: Response) -> Health:
    """Report that the event loop and the tasks of the server run. Checks nothing remote.

    It fails after repeated failures of a task, so that the process is restarted.
    """
    problems = services.tasks.problems()
    response.status_code = 503 if problems else 200
    return Health(status="unavailable" if problems else "ok", checks=problems)


@router.get("/readyz", responses={503: {"model": Health, "description": "A dependency does not respond"}})
async def readyz(services: TheServices, response: Response, verbose: Verbose = False) -> Health:
    """Check all dependencies of requests: database, cluster, leader."""
    checks: dict[str, Callable[[], Awaitable[str]]] = {
        "database": lambda: _database(services),
        "cluster": lambda: _cluster(services),
        **services.checks,
    }
    answers = await asyncio.gather(*(_run_check(check) for check in checks.values()))
    is_ready = all(is_ok for is_ok, _ in answers)
    response.status_code = 200 if is_ready else 503
    reported = {name: text for name, (is_ok, text) in zip(checks, answers, strict=True) if verbose or not is_ok}
    return Health(status="ok" if is_ready else "unavailable", checks=reported)


@router.get("/v1/sign-in")
async def sign_in(services: TheServices) -> SignIn:
    """Get how people sign in. Needs no token, because clients ask before they have one."""
    settings = services.settings
    client_id = settings.oidc_client_id or settings.oidc_audience
    return SignIn(issuer=settings.oidc_issuer or None, client_id=client_id, scopes=settings.oidc_scopes)


@router.get("/version", dependencies=[TOKEN])
async def version(services: TheServices, sender: VersionReader) -> Version:
    """Get the version of the server and of the API, and the addresses of other systems."""
    return Version(version=__version__, api="v1", links=server_links(services.settings))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
    dependencies=[TOKEN],
)
async def metrics(services: TheServices, sender: MetricsReader) -> Response:
    """Get metrics in the Prometheus text format."""
    return Response(await services.render_metrics(), media_type=CONTENT_TYPE_LATEST)


async def _run_check(check: Callable[[], Awaitable[str]]) -> tuple[bool, str]:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            return True, await check()
    except TimeoutError:
        return False, f"no answer within {_CHECK_TIMEOUT_S:.0f} s"
    except RegroupError as error:
        return False, str(error)


async def _database(services: Services) -> str:
    await services.store.ping()
    return "answers"


async def _cluster(services: Services) -> str:
    return f"{len(await services.cluster.nodes())} nodes"
