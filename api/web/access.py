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
from functools import lru_cache
from urllib.parse import urlsplit

SIGN_IN = "/sign-in"
"""Path of the link that signs a browser in."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/v1/sign-in", SIGN_IN})
"""Paths that answer without the token: for probes, and for clients that do not have one yet."""
CONSOLE = "/console"
"""Path of the console. Its page and files have no data, and its page asks for the sign-in."""
CHALLENGES = ('Bearer realm="regroup"', 'Basic realm="regroup"')
"""Values of `WWW-Authenticate`. With Basic, a browser asks for the token itself: its password, with any user name.

Browsers keep it per origin. A cookie is sent to every port of this host, and another user may listen there. So a cookie
proves nothing alone: scripts of pages send `PROOF_HEADER` in addition, from the storage of their origin.
"""
PROOF_HEADER = "Regroup-Session-Proof"
"""Header of scripts in a browser that has signed in. An empty value prevents the browser's own dialog after a 401."""
_PAGES = re.compile(r"/openapi\.json|/docs(/[^/]*)?")
"""Pages and their files, which have no data. A browser requests them before a script can send the proof."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORT = "80"
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
    cookies: Sequence[str] = ()
    fetch_modes: Sequence[str] = ()
    fetch_destinations: Sequence[str] = ()
    proofs: Sequence[str] = ()


@dataclass(frozen=True)
class Refusal:
    """The reason for which a request is not allowed."""

    code: str
    """Code of the problem."""
    detail: str


def refusal_of(
    sender: SenderHeaders, public_hosts: Sequence[str] = (), *, accepts_links: bool = False
) -> Refusal | None:
    """Return why no request of this sender is allowed, whatever its token; None if it is allowed.

    Args:
        sender: headers of the request.
        public_hosts: names of the server in addition to loopback.
        accepts_links: pages of other sites may have a link that a person follows to this path.
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
        if site not in _OWN_SITES and not (accepts_links and _is_followed_link(sender)):
            return Refusal("forbidden", f"requests from other pages are not allowed (Sec-Fetch-Site: {site!r})")
    return None


def refusal_of_change(sender: SenderHeaders, method: str) -> Refusal | None:
    """Return why a request with a cookie may change nothing: no browser shows that a page of this server sends it."""
    if method in _SAFE or sender.origins or "same-origin" in sender.fetch_sites:
        return None
    detail = (
        "a change with the cookie of a browser needs `Sec-Fetch-Site: same-origin` or `Origin`; send a token instead"
    )
    return Refusal("forbidden", detail)


def is_open(path: str) -> bool:
    """Return True for a path that answers without the token."""
    return path in OPEN_PATHS or _is_of_console(path)


def accepts_links(method: str, path: str) -> bool:
    """Return True for a page to which pages of other sites may link, for example a dashboard: those of the console."""
    return method in ("GET", "HEAD") and _is_of_console(path)


def is_page(method: str, path: str) -> bool:
    """Return True for a page without data, for which the cookie of a browser is enough."""
    return method == "GET" and _PAGES.fullmatch(path) is not None


def cookie_name(host: str, *, has_tls: bool) -> str:
    """Return the name of the cookie of sessions.

    With TLS, the prefix makes browsers accept it only from this host. Without it, servers on several ports of a host
    have one cookie each.

    Args:
        host: `host[:port]` of the request.
        has_tls: True if browsers reach the server over TLS.
    """
    if has_tls:
        return "__Host-regroup"
    _, colon, port = host.removeprefix("[").rpartition(":")
    return f"regroup_{port if colon and port.isdecimal() else _DEFAULT_PORT}"


def session_cookie(sender: SenderHeaders, *, has_tls: bool) -> str | None:
    """Return the cookie of a session; None if the request has none, or several that differ."""
    name = cookie_name(sender.hosts[0] if sender.hosts else "", has_tls=has_tls)
    pairs = (pair.strip().partition("=") for header in sender.cookies for pair in header.split(";"))
    values = {value for key, _, value in pairs if key == name}
    return values.pop() if len(values) == 1 else None


def session_proof(sender: SenderHeaders) -> str | None:
    """Return the proof that a script sent with the cookie; None if there is none, or several."""
    return sender.proofs[0] if len(sender.proofs) == 1 else None


def challenges_for(sender: SenderHeaders) -> Sequence[str]:
    """Return the values of `WWW-Authenticate`. A script shows its own page for a session that has ended."""
    return CHALLENGES[:1] if sender.proofs else CHALLENGES


def token_of(sender: SenderHeaders) -> str | None:
    """Return the token of a request; None if it has none, or if its headers contradict each other."""
    tokens = {_token_in(given) for given in sender.authorizations}
    return tokens.pop() if len(tokens) == 1 else None


@lru_cache(maxsize=1024)
def is_loopback(netloc: str) -> bool:
    """Return True if `host[:port]` is a loopback address or localhost, in the form that clients send."""
    if not _HOST.fullmatch(netloc):
        return False
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_of_console(path: str) -> bool:
    return path in ("/", CONSOLE) or path.startswith(f"{CONSOLE}/")


def _is_followed_link(sender: SenderHeaders) -> bool:
    """Return True if a browser loads the page into a window of its own, and not into a part of the other page."""
    return tuple(sender.fetch_modes) == ("navigate",) and tuple(sender.fetch_destinations) == ("document",)


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
