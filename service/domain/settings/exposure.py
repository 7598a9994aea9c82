"""Checks of the settings with which a server listens. Tokens must not cross the network unencrypted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.loopback import is_loopback_host

_DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Exposure:
    """Addresses at which clients reach a server, and the encryption of their connections."""

    host: str
    """Address on which it listens."""
    has_cert: bool
    has_key: bool
    """The files of its TLS certificate are given."""
    behind_proxy: bool
    """A proxy with TLS sends all requests."""
    has_socket: bool
    """The server listens on a Unix socket instead."""
    public_hosts: Sequence[str]
    """Names under which clients reach it."""


def find_exposure_problem(found: Exposure) -> tuple[str, str] | None:
    """Return the setting that cannot be used, and why; None if all can."""
    if found.has_cert != found.has_key:
        name = "tls_key" if found.has_cert else "tls_cert"
        return name, "tls_cert and tls_key belong together: give both files, or none"
    if found.has_cert and found.behind_proxy:
        return "behind_proxy", "the proxy has TLS, so tls_cert has no effect; give one of them"
    if found.has_socket and (found.has_cert or found.host != _DEFAULT_HOST):
        return "unix_socket", "replaces host, port and TLS: give one of them"
    if is_loopback_host(found.host):
        return None
    if not found.has_cert and not found.behind_proxy:
        return "host", (
            "is not a loopback address, and the network would carry tokens without encryption: give --tls-cert and "
            "--tls-key, or --behind-proxy if a proxy with TLS sends all requests; or use 127.0.0.1 and connect "
            "through an SSH tunnel"
        )
    if not found.public_hosts:
        return "host", (
            "is not a loopback address: name the hosts under which clients reach the server, for example "
            "--public-host regroup.example.com"
        )
    return None
