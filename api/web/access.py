"""Access to the API: a pure decision over the host, the origin and the token of a request.

The server listens on loopback, which every local user and every web page in a browser on this machine reaches. A page
must not use it through a name that resolves to 127.0.0.1 (DNS rebinding), nor from another origin, another loopback
port included. Everything else needs the token.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

OPEN_PATHS = frozenset({"/livez", "/readyz"})
"""Paths that answer without the token, for probes."""
CHALLENGES = ('Bearer realm="regroup"', 'Basic realm="regroup"')
"""Values of `WWW-Authenticate`. With Basic, a browser asks for the token itself: its password, with any user name.

Browsers keep it per origin. A cookie would be sent to every port of this host, and another user may listen there.
"""
_HOST = re.compile(r"(localhost|[0-9.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site`: a page of this server, or a person who typed the address."""


@dataclass(frozen=True)
class Sender:
    """The headers of a request that tell who sends it. Each header should appear at most once."""

    hosts: Sequence[str]
    origins: Sequence[str] = ()
    fetch_sites: Sequence[str] = ()
    authorizations: Sequence[str] = ()


@dataclass(frozen=True)
class Refusal:
    """The reason for which a request is not allowed."""

    code: str
    """Code of the problem."""
    detail: str


def refusal_of(path: str, sender: Sender, token: str, token_path: Path) -> Refusal | None:
    """Return why a request for `path` is refused, or None if it is allowed.

    Args:
        path: path of the URL, decoded.
        sender: the headers.
        token: token of this server.
        token_path: its file, for the message.
    """
    host = sender.hosts[0] if len(sender.hosts) == 1 else ""
    if not is_loopback(host):
        detail = f"Host {', '.join(sender.hosts)!r} is not loopback; this server accepts only 127.0.0.1 and localhost"
        return Refusal("host_not_allowed", detail)
    for origin in sender.origins:
        if not _is_own(origin, host):
            return Refusal("forbidden", f"requests from pages of {origin!r} are not allowed")
    for site in sender.fetch_sites:
        if site not in _OWN_SITES:
            return Refusal("forbidden", f"requests from other pages are not allowed (Sec-Fetch-Site: {site!r})")
    if path in OPEN_PATHS or (sender.authorizations and all(_has(token, given) for given in sender.authorizations)):
        return None
    problem = "the token in Authorization is not the one of this server" if sender.authorizations else "there is none"
    return Refusal(
        "unauthorized",
        f"this server needs its token, and {problem}. The token is in the file {token_path} on the server's machine. "
        "The command line and the Python client find it for the server of this machine; for another one, set "
        "REGROUP_TOKEN to the token, or REGROUP_TOKEN_FILE or `regroup --token-file` to a copy of the file. Other "
        "programs send `Authorization: Bearer TOKEN`; a browser asks for it as the password",
    )


def is_loopback(netloc: str) -> bool:
    """Return True if `host[:port]` is a loopback address or localhost, in the form that clients send."""
    if not _HOST.fullmatch(netloc):
        return False
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_own(origin: str, host: str) -> bool:
    """Return True if a page of `origin` was loaded from this server: its host and port are those of the request."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _has(token: str, authorization: str) -> bool:
    """Return True if an `Authorization` header has the token. Takes the same time for every wrong token."""
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    match scheme.lower():
        case "bearer":
            return _are_equal(given, token)
        case "basic":
            try:
                _, _, password = base64.b64decode(given, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return False
            return _are_equal(password, token)
        case _:
            return False


def _are_equal(one: str, other: str) -> bool:
    digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in (one, other)]
    return hmac.compare_digest(*digests)
