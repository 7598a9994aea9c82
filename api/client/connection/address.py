"""Addresses of servers as people type them: URLs, hosts and Unix sockets."""

from pathlib import Path
from urllib.parse import urlsplit

from regroup.service.domain.errors import FieldIssue, SpecError

DEFAULT_PORT = 8500
UNIX = "unix:"
"""Begins the address of a Unix socket: `unix:/run/regroup/api.sock`."""


def server_url(text: str) -> str:
    """Return the URL of a server given as `URL`, `HOST:PORT`, `HOST` or `unix:PATH`.

    Raises:
        SpecError: `text` names no host, or another scheme than http and https.
    """
    stripped = text.strip()
    if stripped.startswith(UNIX):
        path = "/" + stripped.removeprefix(UNIX).lstrip("/")
        if path == "/":
            message = "names no path; use unix:/PATH, or use HOST:PORT or http://HOST:PORT"
            raise SpecError([FieldIssue("server", message, text)])
        return f"{UNIX}{path}"
    has_scheme = "://" in stripped
    url = stripped if has_scheme else f"http://{stripped}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError([FieldIssue("server", f"{error}; use HOST:PORT or http://HOST:PORT", text)]) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or any(each.isspace() for each in stripped):
        message = "is not the address of a server; use HOST:PORT or http://HOST:PORT"
        raise SpecError([FieldIssue("server", message, text)])
    if has_scheme or port is not None:
        return url.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}:{DEFAULT_PORT}"


def socket_path(url: str) -> Path | None:
    """Return the path of the Unix socket that a URL names; None for any other URL."""
    return Path(url.removeprefix(UNIX)) if url.startswith(UNIX) else None
