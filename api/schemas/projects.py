"""Wire models of projects."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from regroup.service.spec.budget import ProjectBudget
from regroup.service.spec.project_limits import ProjectLimits
from regroup.service.spec.types import Integer, Number

Devices = Annotated[Integer, Field(ge=0, lt=2**53)]


class ProjectSettings(BaseModel):
    """Quotas, limits and defaults of a project."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    guaranteed: Devices = 0
    """Number of devices that the project always gets: jobs that borrowed them are shrunk or suspended."""
    borrowable: Devices | None = None
    """Number of guaranteed devices that others may use while the project does not; all if null."""
    limit: Devices | None = None
    """Largest number of devices that the project may use; null for no limit."""
    weight: Number = Field(default=1.0, ge=1e-6, le=1e6)
    """Share of the project compared with other projects, among jobs of the same priority."""
    spares: Integer = Field(default=0, ge=0, le=10_000)
    """Number of spare nodes for the project's running jobs."""
    budget: ProjectBudget | None = None
    """Device-hours or cost that the project's jobs may use together; null for no budget."""
    admits: ProjectLimits = ProjectLimits()
    """Limits on the specs of the project's jobs."""
    defaults: Annotated[dict[str, Any], Field(max_length=100)] = {}
    """Default values of spec fields for the project's jobs."""


class Project(ProjectSettings):
    """A project with its settings and its use."""

    name: str
    """Name of the project."""
    allocated: int
    """Number of devices that its jobs use."""
    running: int
    """Number of jobs that use devices."""
    queued: int
    """Number of queued jobs."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""
    budget_used: float | None = None
    """Use of the budget, in its unit; null without a budget."""


class ProjectList(BaseModel):
    """Projects that have settings or unfinished jobs, ordered by name."""

    projects: list[Project]
    """The projects."""
