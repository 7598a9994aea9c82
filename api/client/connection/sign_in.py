"""Sign-in with an OpenID Connect issuer: in a browser of this machine, or with a code on another device.

Authorization code with PKCE and a loopback redirect (RFC 8252, RFC 7636), and the device grant (RFC 8628). The client
is public: it has no secret.
"""

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from regroup.service.domain.errors import UnauthorizedError, UnavailableError
from regroup.service.domain.loopback import is_loopback_host

PATIENCE_S = 300.0
"""Time that a user has to sign in."""
_TIMEOUT_S = 15.0
_DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER_S = 5.0
"""Addition to the interval after `slow_down` (RFC 8628, section 3.5)."""
_DONE = b"<!doctype html><title>regroup</title><p>You are signed in. You can close this page.</p>"
_FAILED = b"<!doctype html><title>regroup</title><p>The sign-in failed; the terminal shows why.</p>"


@dataclass(frozen=True)
class IssuerEndpoints:
    """Addresses of an issuer (OpenID Connect Discovery 1.0, RFC 8414)."""

    issuer: str
    authorization: str | None
    token: str
    device: str | None


@dataclass(frozen=True)
class IssuedTokens:
    """Tokens of a user."""

    access_token: str = field(repr=False)
    id_token: str | None = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float
    """Unix seconds."""


def discover(issuer: str) -> IssuerEndpoints:
    """Return the addresses of an issuer.

    Raises:
        UnavailableError: the issuer does not answer, or its document is not valid.
    """
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        with _http() as http:
            answer = http.get(url)
            answer.raise_for_status()
            document = cast(Mapping[str, Any], answer.json())
        if document["issuer"] != issuer:
            raise ValueError(f"it calls itself {document['issuer']!r}")
        return IssuerEndpoints(
            issuer,
            _secure(document.get("authorization_endpoint")),
            _secure(document["token_endpoint"]) or "",
            _secure(document.get("device_authorization_endpoint")),
        )
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"the issuer {issuer} cannot be used: {error}") from error


def sign_in_with_browser(
    endpoints: IssuerEndpoints,
    client_id: str,
    scopes: str,
    open_page: Callable[[str], object],
    patience_s: float = PATIENCE_S,
) -> IssuedTokens:
    """Open a page of the issuer, and wait until it sends the browser back to this process.

    Args:
        open_page: opens a URL in a browser, or shows it.

    Raises:
        UnauthorizedError: the user or the issuer refused, or the time has passed.
        UnavailableError: the issuer does not answer, or has no such page.
    """
    if endpoints.authorization is None:
        raise UnavailableError(f"the issuer {endpoints.issuer} has no page to sign in; use --device")
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    with _Callback(state) as callback:
        parameters = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": callback.url,
            "scope": scopes,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoints.authorization).query else "?"
        open_page(f"{endpoints.authorization}{joint}{urlencode(parameters)}")
        answer = callback.wait(patience_s)
        if answer.get("iss", endpoints.issuer) != endpoints.issuer:  # RFC 9207
            raise UnauthorizedError(f"the answer came from another issuer, {answer['iss']!r}")
        if "code" not in answer:
            raise UnauthorizedError(f"the issuer refused: {_described(answer)}")
        return _request_tokens(
            endpoints.token,
            {
                "grant_type": "authorization_code",
                "code": answer["code"],
                "redirect_uri": callback.url,
                "client_id": client_id,
                "code_verifier": verifier,
            },
        )


def sign_in_with_device(
    endpoints: IssuerEndpoints,
    client_id: str,
    scopes: str,
    show: Callable[[str, str], object],
    sleep: Callable[[float], object] = time.sleep,
) -> IssuedTokens:
    """Show an address and a code for another device, and poll until the user has signed in there.

    Args:
        show: shows the address and the code.

    Raises:
        UnauthorizedError: the user or the issuer refused, or the code has expired.
        UnavailableError: the issuer does not answer, or has no device grant.
    """
    if endpoints.device is None:
        raise UnavailableError(f"the issuer {endpoints.issuer} has no sign-in with a code; leave out --device")
    begun = _post(endpoints.device, {"client_id": client_id, "scope": scopes})
    if "device_code" not in begun:
        raise UnauthorizedError(f"the issuer refused: {_described(begun)}")
    show(str(begun.get("verification_uri_complete") or begun["verification_uri"]), str(begun["user_code"]))
    interval_s = float(begun.get("interval", 5))
    until_s = time.monotonic() + min(float(begun.get("expires_in", PATIENCE_S)), 2 * PATIENCE_S)
    form = {"grant_type": _DEVICE_CODE, "device_code": begun["device_code"], "client_id": client_id}
    while time.monotonic() < until_s:
        sleep(interval_s)
        answer = _post(endpoints.token, form)
        match answer.get("error"):
            case None:
                return _read_tokens(answer)
            case "authorization_pending":
                pass
            case "slow_down":
                interval_s += _SLOWER_S
            case _:
                raise UnauthorizedError(f"the issuer refused: {_described(answer)}")
    raise UnauthorizedError("the code has expired; sign in again")


def renew_tokens(token_endpoint: str, client_id: str, refresh_token: str) -> IssuedTokens:
    """Return new tokens for a refresh token. The issuer may have replaced the refresh token as well.

    Raises:
        UnauthorizedError: the refresh token has ended.
        UnavailableError: the issuer does not answer.
    """
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    fresh = _request_tokens(token_endpoint, form)
    kept = fresh.refresh_token or refresh_token
    return IssuedTokens(fresh.access_token, fresh.id_token, kept, fresh.expires_at)


class _Callback:
    """A listener on loopback that gets one answer with the expected state."""

    def __init__(self, state: str) -> None:
        answered = self._answered = threading.Event()
        found = self._found = dict[str, str]()

        class Handler(BaseHTTPRequestHandler):
            timeout = 5.0

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                given = {name: values[0] for name, values in parse_qs(parts.query).items()}
                is_ours = parts.path == "/callback" and secrets.compare_digest(given.get("state", ""), state)
                if is_ours and not answered.is_set():
                    found.update(given)
                    answered.set()
                body = _DONE if is_ours and "code" in given else _FAILED
                self.send_response(200 if is_ours else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: the address contains the code."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._server.timeout = 1.0
        self.url = f"http://127.0.0.1:{self._server.server_port}/callback"

    def __enter__(self) -> "_Callback":
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, patience_s: float) -> Mapping[str, str]:
        """Return the answer; raises UnauthorizedError if there is none in time."""
        if not self._answered.wait(patience_s):
            raise UnauthorizedError(
                f"the time of {patience_s:.0f} s for the sign-in has passed; try again, or use --device"
            )
        return self._found


def _request_tokens(endpoint: str, form: Mapping[str, str]) -> IssuedTokens:
    answer = _post(endpoint, form)
    if "error" in answer:
        raise UnauthorizedError(f"the issuer refused: {_described(answer)}")
    return _read_tokens(answer)


def _read_tokens(answer: Mapping[str, Any]) -> IssuedTokens:
    try:
        expires_at = time.time() + float(answer.get("expires_in") or 300)
        id_token, refresh_token = answer.get("id_token"), answer.get("refresh_token")
        return IssuedTokens(str(answer["access_token"]), id_token, refresh_token, expires_at)
    except (KeyError, TypeError, ValueError) as error:
        raise UnavailableError(f"the issuer's answer has no token: {error}") from error


def _post(url: str, data: Mapping[str, str]) -> Mapping[str, Any]:
    """Send a form, and return the JSON of the answer, also of an error (RFC 6749, section 5.2)."""
    try:
        with _http() as http:
            answer = http.post(url, data=dict(data), headers={"Accept": "application/json"})
        if answer.status_code >= 500:
            answer.raise_for_status()
        found: object = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise UnavailableError(f"the issuer does not answer: {error}") from error
    if not isinstance(found, dict):
        raise UnavailableError("the issuer's answer is not an object")
    return cast(Mapping[str, Any], found)


def _http() -> httpx2.Client:
    return httpx2.Client(timeout=_TIMEOUT_S, follow_redirects=False)


def _secure(url: object) -> str | None:
    """Return an address of an issuer, which must be encrypted or on loopback."""
    if url is None:
        return None
    parts = urlsplit(str(url))
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        raise ValueError(f"{url} is not encrypted")
    return str(url)


def _described(answer: Mapping[str, Any]) -> str:
    code, text = str(answer.get("error", "no reason")), str(answer.get("error_description", ""))
    return f"{code}: {text}"[:300] if text else code
