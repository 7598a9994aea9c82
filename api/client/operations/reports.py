"""Requests for reports over all jobs and over the server."""

from regroup.api.client.connection.requests import Request, to_model, url_path
from regroup.api.schemas.reports.reliability import Reliability
from regroup.api.schemas.reports.server_settings import ServerSetting, ServerSettings


def reliability(from_s: float | None, to_s: float | None, project: str | None) -> Request[Reliability]:
    """Get the reliability report."""
    times = {name: None if at_s is None else repr(at_s) for name, at_s in (("from", from_s), ("to", to_s))}
    return Request("GET", url_path("reliability"), to_model(Reliability), params={**times, "project": project})


def server_settings() -> Request[list[ServerSetting]]:
    """Get the effective settings of the server."""
    to_settings = to_model(ServerSettings)
    return Request("GET", url_path("settings"), lambda response: to_settings(response).settings)
