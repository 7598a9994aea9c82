"""The listening socket of the server: an address with or without TLS, or a Unix socket."""

import socket
import stat
from pathlib import Path

from regroup.service.domain.errors import ConflictError
from regroup.service.settings import Settings

UNIX = "unix:"
"""Begins the URL of a Unix socket: `unix:/run/regroup/api.sock`."""


def bind(settings: Settings) -> socket.socket:
    """Bind the listening socket. The caller does this before it starts anything expensive.

    Raises:
        ConflictError: the port or the path is in use.
    """
    if settings.unix_socket is not None:
        return _bind_path(settings.unix_socket)
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, settings.port))
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"port {settings.port} of {host} is in use ({error}); use --port 0 for a free one"
        ) from error
    return listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    """Return the URL under which clients on this machine reach the server."""
    if settings.unix_socket is not None:
        return f"{UNIX}{settings.unix_socket}"
    host, port = listener.getsockname()[:2]
    if settings.tls_cert is not None:
        return f"https://{settings.public_hosts[0]}:{port}" if settings.public_hosts else f"https://{host}:{port}"
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind_path(path: Path) -> socket.socket:
    """Bind a Unix socket that only this user can connect to. A socket without a listener is replaced."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(path))
            raise ConflictError(f"another server listens on {path}; choose another --unix-socket")
        raise ConflictError(f"{path} exists and is not a socket; choose another --unix-socket")
    except FileNotFoundError:
        pass
    except ConnectionRefusedError:
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        raise ConflictError(f"cannot listen on {path}: {error}") from error
    return listener
