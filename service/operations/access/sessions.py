"""Use cases of browsers: links that sign in once, and the sessions that they begin.

Links are in the memory of this process, so a restart ends them. Sessions are in the database.
"""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from regroup.service.domain.author import Author
from regroup.service.domain.credentials.random_secrets import digest_of, generate_secret, has_digest
from regroup.service.domain.credentials.session_secrets import generate_cookie, parse_cookie
from regroup.service.domain.errors import ForbiddenError, NotFoundError, UnauthorizedError
from regroup.service.domain.identity import Identity, IdentityKind
from regroup.service.operations.access.authentication import CACHED_S, Authentication
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.access.external_tokens import ExternalTokens
from regroup.service.store.access.audit import Change
from regroup.service.store.rows.identity_rows import SessionRow
from regroup.service.store.store import Store

LINK_S = 600.0
"""Time for which a link is valid."""
MOST_SESSIONS = 50
"""Largest number of sessions of one identity; the oldest end."""
_MOST_LINKS, _MOST_OWN_LINKS = 1000, 10
"""Largest number of valid links, of all and of one identity; the oldest end."""
_MOST_AGENT_CHARACTERS = 200
_USE_INTERVAL_S = 60.0
_MAX_CACHED = 10_000
_NEW_LINK = "`regroup console` opens a new session"


@dataclass(frozen=True)
class Owner:
    """The owner of the server."""

    identity: Identity
    token_digest: str
    """SHA-256 of the owner's token. A session of the owner ends when the token changes."""


@dataclass(frozen=True)
class Link:
    """A link that signs a browser in, once."""

    code: str = field(repr=False)
    expires_at: float
    """Unix seconds."""


@dataclass(frozen=True)
class NewSession:
    """A session that has begun. Its secrets are shown once."""

    row: SessionRow
    cookie: str = field(repr=False)
    proof: str = field(repr=False)


@dataclass(frozen=True)
class _StoredLink:
    digest: str
    identity: Identity
    until_s: float
    """Monotonic seconds."""


class Sessions:
    """Use cases of browsers.

    Args:
        clock: Unix seconds.
        duration_s: time after which a session ends.
    """

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        external: ExternalTokens,
        owner: Owner,
        clock: Callable[[], float],
        duration_s: float,
    ) -> None:
        self._store, self._authentication, self._external = store, authentication, external
        self._owner, self._clock, self._duration_s = owner, clock, duration_s
        self._links: list[_StoredLink] = []
        """Valid links, the oldest first."""
        self._cached: dict[str, tuple[SessionRow, float]] = {}
        """Id → session, and the monotonic seconds until which it is not read again."""

    # ------------------------------------------------------------ links

    def owner_link(self) -> Link:
        """Create a link for the owner of the server, who starts it."""
        return self._create_link(self._owner.identity)

    async def issue_link(self, sender: Sender) -> Link:
        """Create a link for the sender.

        Raises:
            ForbiddenError: the sender is a program, or itself a session of a browser.
        """
        if sender.identity.kind is IdentityKind.SERVICE_ACCOUNT:
            raise ForbiddenError(f"{sender.name} is a service account, and only people sign in with a browser")
        if sender.identity.session_id is not None:
            raise ForbiddenError(
                "a session of a browser cannot create links, which would extend it; type `regroup console`"
            )
        link = self._create_link(sender.identity)
        change = Change("sessions.link", sender.name, after={"expires_at": link.expires_at})
        await self._store.audit.record(sender.author, change, self._clock())
        return link

    async def sign_in(self, code: str, address: str, agent: str) -> NewSession:
        """Begin a session with the code of a link, which is then used.

        Args:
            address: address of the browser.
            agent: name that the browser gives itself.

        Raises:
            UnauthorizedError: the code is not valid, or its identity has lost access since.
            UnavailableError: the database does not answer.
        """
        identity = self._use_link(code)
        cookie, proof, now = generate_cookie(), generate_secret(), self._clock()
        row = SessionRow(
            cookie.id, identity.subject, digest_of(cookie.secret), digest_of(proof), address, _printable(agent), now,
            now + self._duration_s, token_id=identity.token_id, groups=identity.groups,
            owner_digest=self._owner.token_digest if identity.kind is IdentityKind.OWNER else None,
        )  # fmt: skip
        await self._identity_of(row)
        author = Author(identity.subject, row.id, address)
        await self._store.identities.sessions.create(row, most=MOST_SESSIONS, author=author)
        return NewSession(row, cookie.value, proof)

    # ------------------------------------------------------------ sessions

    async def identify(self, cookie: str, proof: str | None, *, needs_proof: bool) -> Identity:
        """Return the identity of a request with a cookie, and record that the session was used.

        Args:
            needs_proof: False for pages without data, which a browser requests before its scripts run.

        Raises:
            UnauthorizedError: the session has ended, or the proof is missing or wrong.
            UnavailableError: the database does not answer.
        """
        parts = parse_cookie(cookie)
        row = None if parts is None else await self._find(parts.id)
        if parts is None or row is None or not has_digest(parts.secret, row.digest):
            raise UnauthorizedError(f"the session of this browser has ended; {_NEW_LINK}")
        if row.expires_at <= self._clock():
            raise UnauthorizedError(f"the session of this browser has expired; {_NEW_LINK}")
        if needs_proof and (proof is None or not has_digest(proof, row.proof_digest)):
            raise UnauthorizedError(
                "the cookie of a browser is not enough, because it reaches every port of this host: pages of this "
                f"server send the header Regroup-Session-Proof, too. If they do not, {_NEW_LINK}"
            )
        return replace(await self._identity_of(row), session_id=row.id)

    async def sessions(self, sender: Sender, subject: str | None) -> list[SessionRow]:
        """Return the valid sessions of the sender, the newest first. Operators see those of a subject, or of all."""
        if not sender.identity.is_operator:
            subject = sender.name if subject in (None, sender.name) and not sender.identity.is_limited else ""
        return await self._store.identities.sessions.sessions(subject, self._clock())

    async def revoke(self, sender: Sender, session_id: str) -> None:
        """End a session: one of the sender, or any if the sender is an operator. Requests with it are refused at once.

        Raises:
            NotFoundError: there is no such session, or the sender does not see it.
        """
        row = await self._store.identities.sessions.session(session_id)
        if row is None or not _is_visible(sender, row):
            raise NotFoundError(f"no session {session_id!r}; `regroup sessions list` lists them")
        await self._store.identities.sessions.remove(session_id, now=self._clock(), author=sender.author)
        self._cached.clear()

    def _create_link(self, identity: Identity) -> Link:
        code, now_s = generate_secret(), time.monotonic()
        valid = [each for each in self._links if each.until_s > now_s]
        own = [each for each in valid if each.identity.subject == identity.subject]
        if len(own) >= _MOST_OWN_LINKS:
            valid.remove(own[0])
        self._links = [*valid[-(_MOST_LINKS - 1) :], _StoredLink(digest_of(code), identity, now_s + LINK_S)]
        return Link(code, self._clock() + LINK_S)

    def _use_link(self, code: str) -> Identity:
        """Return the identity of a link, and remove the link. Every comparison takes the same time."""
        digest, now_s = digest_of(code), time.monotonic()
        matching = [each for each in self._links if hmac.compare_digest(each.digest, digest)]
        self._links = [each for each in self._links if each not in matching and each.until_s > now_s]
        if not matching or matching[0].until_s <= now_s:
            raise UnauthorizedError(
                "this link was used before, has expired, or is of a server process that has ended; `regroup console` "
                "prints a new one"
            )
        return matching[0].identity

    async def _find(self, session_id: str) -> SessionRow | None:
        now_s = time.monotonic()
        row, until_s = self._cached.get(session_id, (None, 0.0))
        if row is not None and until_s > now_s:
            return row
        self._cached.pop(session_id, None)
        row = await self._store.identities.sessions.session(session_id)
        if row is None:
            return None
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[session_id] = row, now_s + CACHED_S
        now = self._clock()
        if row.used_at is None or now - row.used_at >= _USE_INTERVAL_S:
            await self._store.identities.sessions.record_use(session_id, now)
        return row

    async def _identity_of(self, row: SessionRow) -> Identity:
        """Return the identity of a session as it is now, with the limits of the token that it stands for."""
        if row.token_id is not None:
            return await self._authentication.identity_of_token(row.token_id)
        if row.groups is not None:
            return await self._external.identity_of(row.subject, row.groups)
        if row.owner_digest is None or not hmac.compare_digest(row.owner_digest, self._owner.token_digest):
            raise UnauthorizedError(f"the token of the server's owner has changed since; {_NEW_LINK}")
        return self._owner.identity


def _is_visible(sender: Sender, row: SessionRow) -> bool:
    is_own = row.id == sender.identity.session_id or (row.subject == sender.name and not sender.identity.is_limited)
    return sender.identity.is_operator or is_own


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:_MOST_AGENT_CHARACTERS]
