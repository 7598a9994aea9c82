"""The web application: routes over the services of the server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from regroup import __version__
from regroup.api.web import problems
from regroup.api.web.authenticator import Authenticator
from regroup.api.web.console import pages
from regroup.api.web.console.files import ConsoleFiles
from regroup.api.web.descriptions import TAGS, describe_operations, describe_properties
from regroup.api.web.encoded_answers import EncodedAnswers
from regroup.api.web.examples import add_examples
from regroup.api.web.http import Guard, PageTokens
from regroup.api.web.links import add_links
from regroup.api.web.open_streams import EndStreams, OpenStreams
from regroup.api.web.request_checks import JsonBodies
from regroup.api.web.request_limits import RequestLimits
from regroup.api.web.routes import (
    budgets,
    changes,
    clusters,
    drains,
    evidence,
    exec,
    hooks,
    job_plan,
    jobs,
    nodes,
    ops,
    plans,
    probes,
    projects,
    reference,
    resize,
    secrets,
    specs,
    streams,
    suspend,
    topology,
    uploads,
    usage,
)
from regroup.api.web.routes.access import audit, identities, sessions, sign_in, tokens
from regroup.api.web.routes.capacity import queue, size_starts, what_if
from regroup.api.web.routes.checkpoints import checkpoints
from regroup.api.web.routes.dependencies import TOKEN
from regroup.api.web.routes.history import curves, diff
from regroup.api.web.routes.inspection import logs, ranks
from regroup.api.web.routes.reports import reliability, server_settings, verdicts
from regroup.api.web.routes.story import story
from regroup.api.web.routes.summaries import overview
from regroup.api.web.stream_access import StreamAccess
from regroup.api.web.yaml_bodies import YamlBodies
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.access.sessions import Sessions
from regroup.service.operations.assembly.services import Services

_ROUTERS = (
    overview.router,
    jobs.router,
    checkpoints.router,
    resize.router,
    suspend.router,
    job_plan.router,
    evidence.router,
    story.router,
    ranks.router,
    logs.router,
    streams.router,
    changes.router,
    curves.router,
    diff.router,
    exec.router,
    uploads.router,
    nodes.router,
    drains.router,
    projects.router,
    identities.router,
    tokens.router,
    sessions.router,
    audit.router,
    budgets.router,
    usage.router,
    reliability.router,
    verdicts.router,
    hooks.router,
    secrets.router,
    clusters.router,
    topology.router,
    plans.router,
    queue.router,
    what_if.router,
    size_starts.router,
    probes.router,
    specs.router,
    reference.router,
    sign_in.router,
    ops.router,
    server_settings.router,
)


def create_app(services: Services, token: ApiToken) -> FastAPI:
    """Create the app over `services`. `token` is that of the server's owner. The caller closes the services later."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        app.state.services = services
        app.state.answers = EncodedAnswers()
        app.state.page_tokens = PageTokens(await services.store.own_key("page tokens"))
        await _build_routes(app)
        yield

    app = _create_app(lifespan)
    app.add_middleware(JsonBodies)
    app.add_middleware(YamlBodies)
    app.add_middleware(StreamAccess)
    app.add_middleware(RequestLimits, settings=services.settings, refusals=services.refusals)
    settings, external = services.settings, services.external_tokens
    authenticator = Authenticator(token, services.authentication, external)
    browsers = app.state.sessions = Sessions(
        services.store, services.authentication, external, authenticator.owner, services.clock, settings.session_s
    )
    app.add_middleware(Guard, authenticator, browsers, public_hosts=settings.public_hosts, has_tls=settings.has_tls)
    app.state.console = ConsoleFiles()
    app.state.open_streams = OpenStreams()
    app.add_middleware(EndStreams, streams=app.state.open_streams)
    return app


def openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the API. Needs no services."""
    return _create_app().openapi()


class _App(FastAPI):
    """An app whose OpenAPI document describes every operation and property."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document. It is made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            describe_operations(document)
            add_examples(document)
            problems.document_bodies(document)
            add_links(document)
            describe_properties(document["components"]["schemas"])
        assert self.openapi_schema is not None, "the framework keeps the document"
        return self.openapi_schema


async def _build_routes(app: FastAPI) -> None:
    """Build all routes with one request, so that the start of a job does not wait for it.

    FastAPI builds routes at the first request of a process; this takes about 0.2 s.
    """
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app.router), base_url="http://itself") as client:
        await client.get("/no/route/has/this/path")


def _create_app(lifespan: Any = None) -> FastAPI:
    app = _empty_app(lifespan)
    problems.install(app, [*(route for router in _ROUTERS for route in router.routes), *pages.ROUTES])
    app.router.routes.extend(_included_routers())
    return app


def _empty_app(lifespan: Any = None) -> FastAPI:
    return _App(
        title="regroup",
        version=__version__,
        summary="Elastic multi-node training on Ray",
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        # The framework's own pages load scripts from other hosts; `routes/reference.py` has one that does not.
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        docs_url=None,
        redoc_url=None,
    )


@cache
def _included_routers() -> Sequence[BaseRoute]:
    """Return the routers as an app includes them. All apps of a process share them, so they are built once."""
    app = _empty_app()
    own = len(app.router.routes)
    for router in _ROUTERS:
        app.include_router(router, dependencies=[] if router is ops.router else [TOKEN])
    return [*app.router.routes[own:], *pages.ROUTES]


def _operation_id(route: APIRoute) -> str:
    """Return the id of a route's operation, e.g. `jobs_create`."""
    return f"{route.tags[0] if route.tags else 'api'}_{route.name.rstrip('_')}"
