"""Access to the API: which hosts and pages may send a request, and which token the request has. Pure.

A server on loopback is reached by every local user and by every web page in a browser on this machine. A page must not
use it through a name that resolves to 127.0.0.1 (DNS rebinding), nor from another origin, another loopback port
included. Everything else needs a token; see `authenticator.py`.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

OPEN_PATHS = frozenset({"/livez", "/readyz", "/v1/sign-in"})
"""Paths that answer without the token: for probes, and for clients that do not have one yet."""
CHALLENGES = ('Bearer realm="regroup"', 'Basic realm="regroup"')
"""Values of `WWW-Authenticate`. With Basic, a browser asks for the token itself: its password, with any user name.

Browsers keep it per origin. A cookie would be sent to every port of this host, and another user may listen there.
"""
_HOST = re.compile(r"(localhost|[0-9.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)
_NAME = re.compile(r"([A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site`: a page of this server, or a person who typed the address."""


@dataclass(frozen=True)
class SenderHeaders:
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


def refusal_of(sender: SenderHeaders, public_hosts: Sequence[str] = ()) -> Refusal | None:
    """Return why no request of this sender is allowed, whatever its token; None if it is allowed.

    Args:
        sender: headers of the request.
        public_hosts: names of the server in addition to loopback.
    """
    host = sender.hosts[0] if len(sender.hosts) == 1 else ""
    if not is_loopback(host) and _name_in(host) not in public_hosts:
        names = ", ".join(("127.0.0.1", "localhost", *public_hosts))
        detail = f"Host {', '.join(sender.hosts)!r} is not a name of this server; it accepts {names}"
        return Refusal("host_not_allowed", detail)
    for origin in sender.origins:
        if not _is_own(origin, host):
            return Refusal("forbidden", f"requests from pages of {origin!r} are not allowed")
    for site in sender.fetch_sites:
        if site not in _OWN_SITES:
            return Refusal("forbidden", f"requests from other pages are not allowed (Sec-Fetch-Site: {site!r})")
    return None


def token_of(sender: SenderHeaders) -> str | None:
    """Return the token of a request; None if it has none, or if its headers contradict each other."""
    tokens = {_token_in(given) for given in sender.authorizations}
    return tokens.pop() if len(tokens) == 1 else None


def is_loopback(netloc: str) -> bool:
    """Return True if `host[:port]` is a loopback address or localhost, in the form that clients send."""
    if not _HOST.fullmatch(netloc):
        return False
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_in(netloc: str) -> str:
    """Return the host of `host[:port]` in lower case; empty if it has another form."""
    found = _NAME.fullmatch(netloc)
    return "" if found is None else found[1].lower()


def _is_own(origin: str, host: str) -> bool:
    """Return True if a page of `origin` was loaded from this server: its host and port are those of the request."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _token_in(authorization: str) -> str | None:
    """Return the token in an `Authorization` header: the value of Bearer, or the password of Basic."""
    scheme, _, given = authorization.partition(" ")
    given = given.strip()
    match scheme.lower():
        case "bearer":
            return given or None
        case "basic":
            try:
                return base64.b64decode(given, validate=True).decode().partition(":")[2] or None
            except (binascii.Error, UnicodeDecodeError):
                return None
        case _:
            return None
