"""Requests about identities, members of projects, tokens, and sessions of browsers."""

from collections.abc import Sequence

from regroup.api.client.connection.requests import Request, no_content, to_model, url_path
from regroup.api.schemas.identities import (
    Identity,
    IdentityList,
    IssuedToken,
    Me,
    Member,
    MemberList,
    Token,
    TokenList,
)
from regroup.api.schemas.sessions import Session, SessionLink, SessionList


def me() -> Request[Me]:
    """Get the identity of the sender."""
    return Request("GET", url_path("me"), to_model(Me))


def identities() -> Request[list[Identity]]:
    """List the identities."""
    return Request("GET", url_path("identities"), lambda response: to_model(IdentityList)(response).identities)


def identity(subject: str) -> Request[Identity]:
    """Get an identity."""
    return Request("GET", url_path("identities", subject), to_model(Identity))


def create_identity(
    subject: str, kind: str, project: str | None, role: str | None, *, is_operator: bool, permissions: Sequence[str]
) -> Request[Identity]:
    """Create an identity."""
    body = {
        "subject": subject, "kind": kind, "project": project, "role": role, "is_operator": is_operator,
        "permissions": list(permissions),
    }  # fmt: skip
    return Request("POST", url_path("identities"), to_model(Identity), body=body)


def change_identity(
    subject: str, *, disabled: bool | None, is_operator: bool | None, permissions: Sequence[str] | None
) -> Request[Identity]:
    """Change an identity."""
    given = None if permissions is None else list(permissions)
    body = {"disabled": disabled, "is_operator": is_operator, "permissions": given}
    return Request("PATCH", url_path("identities", subject), to_model(Identity), body=body)


def delete_identity(subject: str) -> Request[None]:
    """Delete an identity."""
    return Request("DELETE", url_path("identities", subject), no_content)


def members(project: str) -> Request[list[Member]]:
    """List the members of a project."""
    path = url_path("projects", project, "members")
    return Request("GET", path, lambda response: to_model(MemberList)(response).members)


def set_member(project: str, subject: str, role: str, permissions: Sequence[str]) -> Request[Member]:
    """Create or change a member of a project."""
    path = url_path("projects", project, "members", subject)
    return Request("PUT", path, to_model(Member), body={"role": role, "permissions": list(permissions)})


def remove_member(project: str, subject: str) -> Request[None]:
    """Remove a member from a project."""
    return Request("DELETE", url_path("projects", project, "members", subject), no_content)


def create_token(
    name: str, subject: str | None, project: str | None, role: str | None, expires_in_s: float | str
) -> Request[IssuedToken]:
    """Create a token."""
    body = {"name": name, "subject": subject, "project": project, "role": role, "expires_in_s": expires_in_s}
    return Request("POST", url_path("tokens"), to_model(IssuedToken), body=body)


def tokens(subject: str | None) -> Request[list[Token]]:
    """List tokens."""
    path = url_path("tokens")
    return Request("GET", path, lambda response: to_model(TokenList)(response).tokens, params={"subject": subject})


def revoke_token(token_id: str) -> Request[Token]:
    """Revoke a token."""
    return Request("DELETE", url_path("tokens", token_id), to_model(Token))


def session_link() -> Request[SessionLink]:
    """Create a link that signs a browser in."""
    return Request("POST", url_path("session-links"), to_model(SessionLink))


def sessions(subject: str | None) -> Request[list[Session]]:
    """List the sessions of browsers."""
    path = url_path("sessions")
    return Request("GET", path, lambda response: to_model(SessionList)(response).sessions, params={"subject": subject})


def revoke_session(session_id: str) -> Request[None]:
    """End a session of a browser."""
    return Request("DELETE", url_path("sessions", session_id), no_content)
