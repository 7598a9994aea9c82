"""/v1/sessions: links that sign a browser in, and the sessions of browsers."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from regroup.api.schemas.identities import Subject
from regroup.api.schemas.sessions import Session, SessionLink, SessionList
from regroup.api.web.access import SIGN_IN, cookie_name
from regroup.api.web.operation import OperationRoute, unconditional
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, TheServices, TheSessions
from regroup.service.operations.access.authorization import Sender
from regroup.service.store.transactions.write_conditions import current_conditions

CURRENT = "current"
"""Stands for the session of the request."""
SessionId = Annotated[str, Path(max_length=64, description=f"Id of the session; `{CURRENT}` for that of this request")]
Caller = Annotated[Sender, Depends(ForEveryone("limits sessions to those of the sender; operators see all"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1", tags=["sessions"], responses=responses())


@router.post("/session-links", status_code=201)
@unconditional("creates a secret in memory, which is shown once")
async def create_link(sessions: TheSessions, sender: Caller) -> SessionLink:
    """Create a link that signs a browser in as you, once, within ten minutes."""
    link = await sessions.issue_link(sender)
    return SessionLink(path=f"{SIGN_IN}?code={link.code}", expires_at=link.expires_at)


@router.get("/sessions")
async def list_(
    sessions: TheSessions,
    sender: Caller,
    subject: Annotated[
        Subject | None, Query(description="Sessions of this identity; all that you see if absent")
    ] = None,
) -> SessionList:
    """List the sessions of browsers with their last use, the newest first."""
    rows = await sessions.sessions(sender, subject)
    return SessionList(sessions=[Session.model_validate(row) for row in rows])


@router.delete("/sessions/{session}", status_code=204)
async def revoke(
    session: SessionId,
    request: Request,
    response: Response,
    sessions: TheSessions,
    services: TheServices,
    sender: Caller,
) -> None:
    """End a session of a browser. Requests with it are refused at once."""
    own = sender.identity.session_id
    session_id = own if session == CURRENT and own is not None else session
    await sessions.revoke(sender, session_id)
    conditions = current_conditions()
    if session_id == own and (conditions is None or not conditions.dry_run):
        has_tls = services.settings.has_tls
        name = cookie_name(request.headers.get("host", ""), has_tls=has_tls)
        response.delete_cookie(name, path="/", secure=has_tls, httponly=True, samesite="strict")
