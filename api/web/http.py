"""Concerns of HTTP that all resources share: access, body sizes, ETags, page tokens."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from functools import partial

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regroup.api.web import access
from regroup.api.web.authenticator import Authenticator
from regroup.api.web.problems import problem
from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.operations.access.sessions import Sessions
from regroup.service.store.rows.records import JobRow

MAX_BODY_BYTES = 1024 * 1024
UPLOADS = "/v1/uploads/"
MAX_PIECE_BYTES = 8 * 1024 * 1024
"""Limit of a body below `UPLOADS`."""


class Guard:
    """Middleware that finds the identity of a request, and refuses requests without one and bodies that are too large.

    The identity is `scope["state"]["identity"]`, and `identify` finds it again. Paths of `access.is_open` have none.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        sessions: Sessions,
        public_hosts: Sequence[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
        *,
        has_tls: bool = False,
    ) -> None:
        self._app, self._sessions, self._has_tls = app, sessions, has_tls
        self._public_hosts = public_hosts
        self._authenticator = authenticator
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass allowed requests to the app, and answer others with a problem. No route uses a WebSocket."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), str(scope["path"])
        limit = MAX_PIECE_BYTES if path.startswith(UPLOADS) else self._max_body_bytes
        too_large = f"a body may have at most {limit} bytes"
        refusal = await self._authenticate(scope, headers, path)
        if refusal is not None:
            pass
        elif "\x00" in path or b"%00" in scope.get("query_string", b""):
            refusal = problem("bad_request", "a name cannot contain the NUL character", path.replace("\x00", ""))
        elif (length := headers.get("content-length", "0")).isdigit() and int(length) > limit:
            refusal = problem("body_too_large", f"{too_large}, this one has {length}", path)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(413, too_large)
            return message

        await self._app(scope, limited, send)

    async def _authenticate(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        """Store the identity in the scope; return the refusal if there is none."""
        sender, method = _sender(headers), str(scope["method"])
        own_path = path.removeprefix(str(scope.get("root_path", "")))
        accepts_links = access.accepts_links(method, own_path)
        refused = access.refusal_of(sender, self._public_hosts, accepts_links=accepts_links)
        if refused is not None:
            advice = "; paste the link into the address bar" if path == access.SIGN_IN else ""
            return problem(refused.code, refused.detail + advice, path)
        if access.is_open(own_path):
            return None
        cookie = access.session_cookie(sender, has_tls=self._has_tls)
        if sender.authorizations or cookie is None:
            token = access.token_of(sender)
            identify = partial(self._authenticator.identify, token, has_header=bool(sender.authorizations))
        elif (refused := access.refusal_of_change(sender, method)) is not None:
            return problem(refused.code, refused.detail, path)
        else:
            proof, needs_proof = access.session_proof(sender), not access.is_page(method, path)
            identify = partial(self._sessions.identify, cookie, proof, needs_proof=needs_proof)
        try:
            identity = await identify()
        except UnauthorizedError as error:
            refusal = problem("unauthorized", str(error), path)
            for challenge in access.challenges_for(sender):
                refusal.headers.append("WWW-Authenticate", challenge)
            return refusal
        except UnavailableError as error:
            return problem("unavailable", str(error), path)
        scope.setdefault("state", {}).update(identity=identity, identify=identify)
        return None


def _sender(headers: Headers) -> access.SenderHeaders:
    return access.SenderHeaders(
        hosts=headers.getlist("host"),
        origins=headers.getlist("origin"),
        fetch_sites=headers.getlist("sec-fetch-site"),
        authorizations=headers.getlist("authorization"),
        cookies=headers.getlist("cookie"),
        fetch_modes=headers.getlist("sec-fetch-mode"),
        fetch_destinations=headers.getlist("sec-fetch-dest"),
        proofs=headers.getlist(access.PROOF_HEADER),
    )


def etag(job: JobRow) -> str:
    """Return the ETag of a job, `"version.revision"`: the version counts events, the revision counts all changes."""
    return f'"{job.version}.{job.revision}"'


class PageTokens:
    """Opaque page tokens: the last id of a page and a digest of the filters, signed."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def make(self, after: str, filters: Mapping[str, Sequence[str]]) -> str:
        """Return a token for the page after `after`."""
        body = json.dumps([after, _filter_digest(filters)]).encode()
        return base64.urlsafe_b64encode(self._sign(body) + body).decode().rstrip("=")

    def read(self, token: str, filters: Mapping[str, Sequence[str]]) -> str:
        """Return the id after which the page starts.

        Raises:
            HTTPException: 400, the token is not from this server or belongs to other filters.
        """
        try:
            raw = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4))
            signature, body = raw[:16], raw[16:]
            if hmac.compare_digest(signature, self._sign(body)):
                after, digest = json.loads(body)
                if digest == _filter_digest(filters):
                    return str(after)
        except ValueError:
            pass
        raise HTTPException(400, "page_token is not valid for these filters; get the first page without a token")

    def _sign(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:16]


def _filter_digest(filters: Mapping[str, Sequence[str]]) -> str:
    text = json.dumps({name: sorted(values) for name, values in sorted(filters.items())})
    return hashlib.sha256(text.encode()).hexdigest()[:16]
