"""Wire models of projects."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regroup.service.spec.project_limits import ProjectLimits

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
    admits: ProjectLimits = ProjectLimits()
    """What its jobs may ask for."""
    defaults: dict[str, Any] = {}
    """Spec fields that its jobs have where they do not say otherwise."""


class Project(ProjectSettings):
    """A project, and who uses it."""

    name: str
    allocated: int
    """Devices that its jobs hold."""
    running: int
    """Jobs that hold devices."""
    queued: int
    """Jobs that wait."""


class ProjectList(BaseModel):
    """Projects that were set up, or have jobs that did not end; by name."""

    projects: list[Project]
