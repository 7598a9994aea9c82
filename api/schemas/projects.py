"""Wire models of `/v1/projects`, and the client's calls of it. Numbers count devices, of which a rank holds one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from regroup.service.spec.project_limits import Admits

T = TypeVar("T", bound=BaseModel)
Devices = Annotated[int, Field(ge=0, lt=2**53)]


class ProjectSettings(BaseModel):
    """What a project may hold and ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guaranteed: Devices = 0
    """It gets so many whenever it asks: jobs of others that borrowed them are shrunk or suspended."""
    borrowable: Devices | None = None
    """How many of the guaranteed others may use while it does not; all if null. The rest is never lent."""
    limit: Devices | None = None
    """The most it may hold; null: what there is."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Its share beside other projects, among jobs of one priority."""
    spares: int = Field(default=0, ge=0, le=10_000)
    """Idle nodes that are kept ready for its running jobs, whichever loses one."""
    admits: Admits = Admits()
    """What its jobs may ask for."""
    defaults: dict[str, Any] = {}
    """Spec fields that its jobs have where they do not say otherwise."""


class Project(ProjectSettings):
    """A project, and who uses it."""

    name: str
    held: int
    """Devices that its jobs hold."""
    running: int
    """Jobs that hold devices."""
    queued: int
    """Jobs that wait."""


class ProjectList(BaseModel):
    """Projects that were set up, or have jobs that did not end; by name."""

    projects: list[Project]


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
