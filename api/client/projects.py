"""Client methods for projects."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from regroup.api.schemas.projects import Project, ProjectList, ProjectSettings

T = TypeVar("T", bound=BaseModel)


class ProjectCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T: ...

    @abstractmethod
    def _send(self, method: str, path: str) -> Any: ...

    def projects(self) -> list[Project]:
        """Projects that were set up, or have jobs that did not end."""
        return self._call(ProjectList, "GET", "/v1/projects").projects

    def project(self, name: str) -> Project:
        """A project; one that was not set up may hold and ask for everything."""
        return self._call(Project, "GET", _path(name))

    def set_project(self, name: str, settings: ProjectSettings | Mapping[str, Any]) -> Project:
        """Set a project up, or change it: what is not given takes its default. What runs runs on."""
        body = settings.model_dump(mode="json") if isinstance(settings, ProjectSettings) else dict(settings)
        return self._call(Project, "PUT", _path(name), body=body)

    def delete_project(self, name: str) -> None:
        """Forget a project that has no jobs which did not end."""
        self._send("DELETE", _path(name))


def _path(name: str) -> str:
    return f"/v1/projects/{quote(name, safe='')}"
