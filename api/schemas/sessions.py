"""Wire models of sessions of browsers."""

from pydantic import BaseModel

from regroup.api.schemas.wire import Wire


class SessionLink(BaseModel):
    """A link that signs a browser in, once."""

    path: str
    """Path and query of the link, to append to the URL of the server. It is a secret."""
    expires_at: float
    """Time after which it is refused, Unix seconds."""


class Session(Wire):
    """A session of a browser, without its secrets."""

    id: str
    """Id of the session."""
    subject: str
    """Identity of the session."""
    token_id: str | None
    """Token for which it stands, with the limits of that token; null if its owner signed in in another way."""
    address: str
    """Address of the browser at the sign-in."""
    agent: str
    """Name that the browser gives itself."""
    created_at: float
    """Time of the sign-in, Unix seconds."""
    expires_at: float
    """Time at which it ends, Unix seconds."""
    used_at: float | None
    """Time of its last use, Unix seconds, at most a minute late."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class SessionList(BaseModel):
    """Sessions, the newest first."""

    sessions: list[Session]
    """The sessions, at most 1,000."""
