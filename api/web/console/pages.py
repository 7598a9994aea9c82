"""/console: the page of the console and its files. They contain no data, so they need no token.

The page itself decides what a path below `/console/` shows. So each path without a file is answered with the page.
"""

import html
from collections.abc import Mapping, Sequence
from typing import cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from regroup.api.web.access import CONSOLE
from regroup.api.web.console.files import ASSETS, INDEX, ConsoleFile, ConsoleFiles

POLICY = "; ".join(
    (
        "default-src 'self'", "img-src 'self' data:", "object-src 'none'", "base-uri 'self'", "form-action 'self'",
        "frame-ancestors 'none'",
    )
)  # fmt: skip
"""Content Security Policy of the page: everything comes from this server. Scripts may set styles, elements may not."""
NOT_BUILT = (
    "This server has no console: its files were not built. Run `make setup` in the source tree, or install the wheel, "
    "which contains them.\n"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_CHECKED = "no-cache"
"""Browsers ask each time whether they have the newest version."""
_KEPT = "public, max-age=31536000, immutable"
"""For files whose name changes with their content."""


async def redirect(request: Request) -> Response:
    """Send the browser to the first page."""
    return RedirectResponse(f"{_root(request)}{CONSOLE}/", status_code=307, headers={"Cache-Control": _CHECKED})


async def show(request: Request) -> Response:
    """Send a file of the console, or its page."""
    return await run_in_threadpool(_show, request)


ROUTES: Sequence[BaseRoute] = (
    Route("/", redirect, include_in_schema=False),
    Route(CONSOLE, redirect, include_in_schema=False),
    Route(f"{CONSOLE}/{{path:path}}", show, include_in_schema=False),
)


def _show(request: Request) -> Response:
    files = cast(ConsoleFiles, request.app.state.console)
    path = str(request.path_params["path"])
    found = None if path in ("", INDEX) else files.find(path)
    if found is not None:
        return _file(request, found, _KEPT if path.startswith(ASSETS) else _CHECKED)
    page = files.index(html.escape(_root(request)))
    if page is None:
        return PlainTextResponse(NOT_BUILT, 404, _HEADERS)
    if path.startswith(ASSETS):
        return PlainTextResponse("The console has no such file. Load the page again.\n", 404, _HEADERS)
    return _file(request, page, _CHECKED)


def _file(request: Request, found: ConsoleFile, cache: str) -> Response:
    headers: Mapping[str, str] = {**_HEADERS, "Cache-Control": cache, "ETag": found.etag}
    if found.etag in (each.strip() for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    content = found.content
    if found.compressed is not None and _accepts_gzip(request.headers.get("accept-encoding", "")):
        content, headers = found.compressed, {**headers, "Content-Encoding": "gzip"}
    return Response(content, headers=headers, media_type=found.media_type)


def _accepts_gzip(accepted: str) -> bool:
    """Return True if a browser decodes gzip. A quality of 0 means that it does not."""
    for each in accepted.replace(" ", "").lower().split(","):
        name, _, quality = each.partition(";q=")
        if name == "gzip":
            return quality == "" or quality.strip("0.") != ""
    return False


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")
