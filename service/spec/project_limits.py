"""Limits on the jobs of a project."""

from typing import Annotated, Literal

from pydantic import Field

from regroup.service.spec.types import AbsolutePath, Degree, LabelValue, Name, SpecModel

_MAX_NAMES = 256


class ProjectLimits(SpecModel):
    """Limits on the specs of a project's jobs. An absent field sets no limit."""

    devices: Annotated[list[Literal["cpu", "cuda"]], Field(max_length=2)] | None = None
    """Allowed device types."""
    max_ranks: Degree | None = None
    """Maximum number of ranks of one job."""
    max_priority: Literal["low", "normal", "high", "critical"] | None = None
    """Highest allowed priority class."""
    accelerators: Annotated[list[LabelValue], Field(max_length=_MAX_NAMES)] | None = None
    """Allowed values of `resources.accelerator`. If set, each CUDA job must set that field."""
    clusters: Annotated[list[Name], Field(max_length=_MAX_NAMES)] | None = None
    """Allowed clusters. A job that names no cluster runs in the default one, which must be allowed."""
    images: Annotated[list[LabelValue], Field(max_length=_MAX_NAMES)] | None = None
    """Allowed values of `environment.image`. If set, each job must set that field."""
    interpreters: Annotated[list[AbsolutePath], Field(max_length=_MAX_NAMES)] | None = None
    """Allowed values of `environment.interpreter`. A job without an interpreter can still list `requirements`."""
