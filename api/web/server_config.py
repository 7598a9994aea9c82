"""The configuration of the web server: limits of connections, TLS, and which proxies are trusted."""

import ssl
from typing import Any

import uvicorn

from regroup.api.web.connections import connection_class
from regroup.service.domain.errors import ConflictError
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
        app, http=connection_class(settings), ws="none", access_log=False, **limits, **proxies, **_tls(settings),
        **options,
    )  # fmt: skip
    try:
        config.load()
    except (OSError, ssl.SSLError, ValueError) as error:
        if settings.tls_cert is None:
            raise
        raise ConflictError(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: {error}"
        ) from error
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


def _tls(settings: Settings) -> dict[str, Any]:
    if settings.tls_cert is None:
        return {}
    return {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}
