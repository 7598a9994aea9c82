"""Requests about the server itself."""

from typing import Any

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.schemas.server import Health, SignIn, Version
from regroup.api.schemas.summaries.overview import Overview

_NOT_READY = frozenset({503})


def health() -> Request[Health]:
    """Get the health of each component, even if the server is not ready."""
    params = {"verbose": True}
    return Request("GET", "/readyz", to_model(Health), params=params, accepted_statuses=_NOT_READY)


def overview() -> Request[Overview]:
    """Get the state of the server in one answer."""
    return Request("GET", url_path("overview"), to_model(Overview))


def version() -> Request[Version]:
    """Get the versions of the server and of the API."""
    return Request("GET", "/version", to_model(Version))


def sign_in_methods() -> Request[SignIn]:
    """Get how people sign in."""
    return Request("GET", url_path("sign-in"), to_model(SignIn))


def spec_schema() -> Request[dict[str, Any]]:
    """Get the JSON Schema of a job spec."""
    return Request("GET", url_path("spec", "schema"), lambda response: response.json())
