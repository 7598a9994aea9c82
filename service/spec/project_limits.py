"""Limits on the jobs of a project."""

from typing import Literal

from regroup.service.spec.types import Positive, SpecModel


class ProjectLimits(SpecModel):
    """Limits on the specs of a project's jobs. An absent field sets no limit."""

    devices: list[Literal["cpu", "cuda"]] | None = None
    """Allowed device types."""
    max_ranks: Positive | None = None
    """Maximum number of ranks of one job."""
    max_priority: Literal["low", "normal", "high", "critical"] | None = None
    """Highest allowed priority class."""
    accelerators: list[str] | None = None
    """Allowed values of `resources.accelerator`. If set, each CUDA job must set that field."""
    images: list[str] | None = None
    """Allowed values of `environment.image`. If set, each job must set that field."""
    interpreters: list[str] | None = None
    """Allowed values of `environment.interpreter`. A job without an interpreter can still list `requirements`."""
