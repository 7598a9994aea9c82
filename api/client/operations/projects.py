"""Requests about projects."""

from collections.abc import Mapping
from typing import Any

from regroup.api.client.connection.requests import Request, no_content, to_model, url_path
from regroup.api.schemas.projects import Project, ProjectList, ProjectSettings


def projects() -> Request[list[Project]]:
    """List the projects."""
    return Request("GET", url_path("projects"), lambda response: to_model(ProjectList)(response).projects)


def project(name: str) -> Request[Project]:
    """Get a project."""
    return Request("GET", url_path("projects", name), to_model(Project))


def set_project(name: str, settings: ProjectSettings | Mapping[str, Any]) -> Request[Project]:
    """Create or replace a project."""
    body = settings.model_dump(mode="json") if isinstance(settings, ProjectSettings) else dict(settings)
    return Request("PUT", url_path("projects", name), to_model(Project), body=body)


def delete_project(name: str) -> Request[None]:
    """Delete a project."""
    return Request("DELETE", url_path("projects", name), no_content)
