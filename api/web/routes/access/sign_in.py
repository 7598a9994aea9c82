"""/sign-in: the page that a one-time link opens. It begins the session of a browser, and shows the next page."""

import html
import json
import secrets
from string import Template
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from regroup.api.web.access import CONSOLE, SIGN_IN, cookie_name
from regroup.api.web.console.links import MAX_LENGTH, is_page
from regroup.api.web.operation import OperationRoute
from regroup.api.web.routes.dependencies import TheServices, TheSessions, get_address
from regroup.api.web.session_storage import PROOF_KEY
from regroup.service.domain.errors import UnauthorizedError

_OPEN_A_LINK = "Type `regroup console` in a terminal. It prints a link to this page that signs your browser in, once."
_NO_PAGE = "This link is not valid: it leads to no page of the console. `regroup console` opens a new one."
_PREFETCHED = "This page is not loaded in advance, because its link is valid once. Open it."
_PAGE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>regroup</title></head>
<body><p id="text">$text</p>$script</body>
</html>
"""
)
_SCRIPT = Template(
    """<script nonce="$nonce">
try {
  localStorage.setItem($key, $proof);
  location.replace($next);
} catch (error) {
  document.getElementById("text").textContent =
    "This browser stores nothing for this page, so it cannot stay signed in: allow it to store data. " + error;
}
</script>"""
)
router = APIRouter(route_class=OperationRoute, include_in_schema=False)


@router.get(SIGN_IN)
async def sign_in(
    request: Request,
    sessions: TheSessions,
    services: TheServices,
    code: Annotated[str, Query(max_length=200, description="Code of the link")] = "",
    page: Annotated[str, Query(max_length=MAX_LENGTH, description="Page of the console that is shown then")] = "",
) -> HTMLResponse:
    """Begin a session with the code of a link: set its cookie, store its proof in the browser, open the console."""
    if not code:
        return _page(_OPEN_A_LINK)
    if not is_page(page):
        return _page(_NO_PAGE, status=400)
    if "prefetch" in request.headers.get("sec-purpose", "") + request.headers.get("purpose", ""):
        return _page(_PREFETCHED, status=403)
    agent = request.headers.get("user-agent", "")
    try:
        session = await sessions.sign_in(code, get_address(request), agent)
    except UnauthorizedError as error:
        return _page(f"You are not signed in: {error}.", status=403)
    nonce, next_page = secrets.token_urlsafe(16), f"{request.scope.get('root_path', '')}{CONSOLE}/{page}"
    values = {"key": json.dumps(PROOF_KEY), "proof": json.dumps(session.proof), "next": json.dumps(next_page)}
    shown = _page("You are signed in.", _SCRIPT.substitute(values, nonce=nonce), nonce)
    has_tls, duration_s = services.settings.has_tls, session.row.expires_at - session.row.created_at
    shown.set_cookie(
        cookie_name(request.headers.get("host", ""), has_tls=has_tls), session.cookie, max_age=int(duration_s),
        path="/", secure=has_tls, httponly=True, samesite="strict",
    )  # fmt: skip
    return shown


def _page(text: str, script: str = "", nonce: str = "", *, status: int = 200) -> HTMLResponse:
    """Return a page that no cache stores, and from which no address leaves."""
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"{policy}; script-src 'nonce-{nonce}'" if nonce else policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(_PAGE.substitute(text=html.escape(text), script=script), status, headers)
