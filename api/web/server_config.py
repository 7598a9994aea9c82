"""The configuration of the web server: limits of connections, TLS, and which proxies are trusted."""

import ssl
from typing import Any

import uvicorn

from regroup.api.web.connections import connection_class
from regroup.service.local.asgi_server import load_certificate
from regroup.service.settings import Settings

_OTHER_REQUESTS = 1000  # in addition to streams; more connections get 503


def configure(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    """Return the configuration for an app.

    The address of a client is that of its connection. Only a trusted proxy may name another one, with
    `X-Forwarded-For`.

    Args:
        options: further options of uvicorn.

    Raises:
        ConflictError: the certificate or its key cannot be used.
    """
    limits = {"limit_concurrency": settings.max_streams + _OTHER_REQUESTS}
    proxies = {"proxy_headers": settings.behind_proxy, "forwarded_allow_ips": ",".join(settings.proxy_addresses)}
    config = uvicorn.Config(
        app, http=connection_class(settings), ws="none", access_log=False, **limits, **proxies, **options
    )
    config.load()
    config.ssl = load_tls(settings)
    return config


def load_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the server; None without a certificate.

    Raises:
        ConflictError: the certificate or its key cannot be used.
    """
    if settings.tls_cert is None:
        return None
    return load_certificate(settings.tls_cert, settings.tls_key)
