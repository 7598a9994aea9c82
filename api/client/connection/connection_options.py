"""Connection of a client: TCP or a Unix socket, and the trusted certificates."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx2

from regroup.api.client.connection.address import socket_path
from regroup.service.domain.errors import ForbiddenError

CA_FILE_VARIABLE = "REGROUP_CA_FILE"
_OVER_SOCKET = "http://localhost"
"""Base URL of requests through a Unix socket. The server accepts this host."""


@dataclass(frozen=True)
class ConnectionOptions:
    """Address, socket and trusted certificates of one server."""

    base_url: str
    socket: Path | None
    """Unix socket; None for TCP."""
    verify: ssl.SSLContext | bool
    """Certificates to trust; True for those of the system. Without TLS, none are loaded, which saves 30 ms."""

    def transport(self) -> httpx2.HTTPTransport:
        """Return the transport of a blocking client."""
        return httpx2.HTTPTransport(verify=self.verify, trust_env=False, uds=self._uds)

    def async_transport(self) -> httpx2.AsyncHTTPTransport:
        """Return the transport of an asynchronous client."""
        return httpx2.AsyncHTTPTransport(verify=self.verify, trust_env=False, uds=self._uds)

    @property
    def _uds(self) -> str | None:
        return None if self.socket is None else str(self.socket)


def connection_options(url: str, ca_file: str | Path | None) -> ConnectionOptions:
    """Return the connection options of the server at `url`.

    Args:
        url: result of `server_url`.
        ca_file: file with certificates of authorities to trust, PEM. Default: `REGROUP_CA_FILE`, else the system's.

    Raises:
        ForbiddenError: the file cannot be read.
    """
    file, socket = ca_file or os.environ.get(CA_FILE_VARIABLE) or None, socket_path(url)
    if not url.startswith("https:"):
        no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return ConnectionOptions(url if socket is None else _OVER_SOCKET, socket, no_certificates)
    verify: ssl.SSLContext | bool = True
    if file is not None:
        try:
            verify = ssl.create_default_context(cafile=str(Path(file).expanduser()))
        except (OSError, ssl.SSLError) as error:
            raise ForbiddenError(f"the certificates in {file} ({CA_FILE_VARIABLE}) cannot be read: {error}") from error
    return ConnectionOptions(url, None, verify)
