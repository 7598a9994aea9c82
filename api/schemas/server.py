"""Wire models of the server itself."""

from regroup.api.schemas.wire import Wire


class Version(Wire):
    """Versions of the server and of the API."""

    version: str
    """Version of the server."""
    api: str
    """Version of the API."""


class Health(Wire):
    """Health of the server."""

    status: str
    """`ok` or `unavailable`."""
    checks: dict[str, str] = {}
    """Results by component: all with `verbose`, else only failures."""
