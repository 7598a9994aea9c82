"""Wire models of the server itself."""

from regroup.api.schemas.wire import Wire


class ServerLinks(Wire):
    """Addresses of other systems that the operator configured; empty if there is none."""

    grafana: str
    """Address of the dashboards in Grafana."""
    ray_dashboard: str
    """Address of the dashboard of Ray."""


class Version(Wire):
    """Versions of the server and of the API, and addresses of other systems."""

    version: str
    """Version of the server."""
    api: str
    """Version of the API."""
    links: ServerLinks = ServerLinks(grafana="", ray_dashboard="")
    """Addresses of other systems."""


class SignIn(Wire):
    """The ways in which people sign in to the server."""

    issuer: str | None
    """URL of the OpenID Connect issuer; null if there is none, and people need a token of `regroup token create`."""
    client_id: str
    """Client id for the issuer."""
    scopes: str
    """Scopes to request, separated by spaces."""


class Health(Wire):
    """Health of the server."""

    status: str
    """`ok` or `unavailable`."""
    checks: dict[str, str] = {}
    """Results by component: all with `verbose`, else only failures."""
