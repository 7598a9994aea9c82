"""`regroup serve` and `regroup down`: run control plane and API in one process, and stop them."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TypeVar

import structlog

from regroup.api.app import create_app
from regroup.api.web.access import SIGN_IN
from regroup.api.web.server_config import configure, load_tls
from regroup.service.local import api_token, private_files, secrets_key
from regroup.service.local.allocator import limit_arenas
from regroup.service.local.api_token import ApiToken
from regroup.service.local.asgi_server import AsgiServer, allow_descriptors, stop_on_signals
from regroup.service.local.data_marker import mark_data_folders
from regroup.service.local.garbage_collector import freeze_started_objects
from regroup.service.local.log_format import hide_variables
from regroup.service.local.server_exit import LISTENER, StartConditions, end_within
from regroup.service.operations.access.sessions import LINK_S, Link
from regroup.service.server import control_plane
from regroup.service.server.listener import bind, url_of
from regroup.service.settings import Settings

T = TypeVar("T")
_EXIT_S = 3.0
"""Longest time between the end of the server's work and the end of the process."""
_log = structlog.get_logger(__name__)
_DRAIN_S = 3  # clients that follow streams hold their requests open; they reconnect to the next server


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Jobs and the local Ray keep running; `down` stops them.

    Raises:
        ConflictError: another server uses the state directory or the port, another user can read the state directory or
            the token, or the certificate cannot be used.
        UnavailableError: the database or the cluster does not respond.
    """
    conditions = StartConditions()
    limit_arenas()
    hide_variables()
    load_tls(settings)  # to refuse a wrong certificate before anything is started
    private_files.make_private()
    private_files.hide_memory()
    for name in (*api_token.VARIABLES, secrets_key.VARIABLE):  # Ray's processes would inherit them
        os.environ.pop(name, None)
    private_files.prepare_state_dir(settings.state_dir)
    mark_data_folders(settings.state_dir, settings.storage_uri, settings.blob_uri)
    allow_descriptors()
    if LISTENER not in os.environ:  # else the record is this process's own
        control_plane.refuse_second(settings.state_dir)
    token = api_token.ensure_token(settings.token_path, create=settings.token_file is None)
    # The working directory becomes sys.path[0] of every Ray worker, so it must not contain the user's packages.
    os.chdir(settings.state_dir)
    asyncio.run(_serve(settings, token, conditions))
    end_within(_EXIT_S)  # the interpreter waits for threads and for Ray's client, which may never return


def down(state_dir: Path, grace_s: float, on_wait: Callable[[int, float], None]) -> list[str]:
    """Stop everything that `serve` started on this state directory, and return descriptions of it.

    Args:
        state_dir: The server's state directory.
        grace_s: Time from SIGTERM to SIGKILL for the programs of jobs.
        on_wait: Called often in this time, with the number of programs and the rest of the time in seconds.
    """
    return control_plane.end_all(state_dir, grace_s, on_wait)


async def _serve(settings: Settings, token: ApiToken, conditions: StartConditions) -> None:
    stopping, head_lost = asyncio.Event(), asyncio.Event()
    stop_on_signals(stopping)
    inherited = os.environ.pop(LISTENER, None)
    with bind(settings) if inherited is None else socket.socket(fileno=int(inherited)) as listener:
        kept = os.dup(listener.fileno())  # the web server closes its own
        await _run(settings, token, listener, stopping, head_lost)
        if head_lost.is_set() and not stopping.is_set():
            _log.warning("the head of the local Ray cluster was lost: the server starts again with a new cluster")
            conditions.restart(kept)


async def _run(
    settings: Settings, token: ApiToken, listener: socket.socket, stopping: asyncio.Event, head_lost: asyncio.Event
) -> None:
    url = url_of(settings, listener)
    async with AsyncExitStack() as stack:
        services = await _enter_unless_stopped(stack, control_plane.control_plane(settings, head_lost), stopping)
        if services is None:
            return
        stop_on_signals(stopping)  # again, because Ray replaced the handlers
        app = create_app(services, token)
        web = AsgiServer(configure(app, settings, log_level="warning", timeout_graceful_shutdown=_DRAIN_S))
        serving = asyncio.create_task(web.serve(sockets=[listener]))
        started = asyncio.create_task(web.up.wait())
        stopped = asyncio.create_task(stopping.wait())
        lost = asyncio.create_task(head_lost.wait())
        try:
            await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                freeze_started_objects()
                dashboard = await services.cluster.dashboard_url()
                control_plane.write_record(settings.state_dir, url, dashboard, token.path)
                print(_ready_line(settings, url, dashboard), flush=True)
                if _is_for_one_user(settings):
                    print(_sign_in_line(url, app.state.sessions.owner_link()), flush=True)
            await asyncio.wait({serving, stopped, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not head_lost.is_set() or stopping.is_set():
                control_plane.remove_record(settings.state_dir)
            app.state.open_streams.end()
            web.should_exit = True
            started.cancel()
            stopped.cancel()
            lost.cancel()
            await serving


def _ready_line(settings: Settings, url: str, dashboard: str | None) -> str:
    if dashboard is None:
        return f"regroup serves at {url}"
    token = "" if not settings.has_local_ray else f" (it asks for the token in {settings.ray_token_path})"
    return f"regroup serves at {url}, Ray dashboard at {dashboard}{token}"


def _is_for_one_user(settings: Settings) -> bool:
    """Return True if browsers of this machine reach the server directly, and its owner is its only user."""
    has_others = settings.has_tls or bool(settings.oidc_issuer or settings.kubernetes_audience)
    return settings.unix_socket is None and not has_others


def _sign_in_line(url: str, link: Link) -> str:
    return f"to sign a browser in, open {url}{SIGN_IN}?code={link.code} (once, within {LINK_S / 60:.0f} minutes)"


async def _enter_unless_stopped(
    stack: AsyncExitStack, context: AbstractAsyncContextManager[T], stopping: asyncio.Event
) -> T | None:
    """Enter `context`, which may take long; return None if the server must stop before that."""
    entering = asyncio.ensure_future(stack.enter_async_context(context))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({entering, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if entering.done():
            return entering.result()
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return None
    finally:
        stopped.cancel()
