"""What a project lets its jobs ask for."""

from typing import Literal

from regroup.service.spec.types import Positive, SpecModel


class ProjectLimits(SpecModel):
    """What jobs of a project may ask for; a field that is absent bounds nothing."""

    devices: list[Literal["cpu", "cuda"]] | None = None
    """Kinds of devices."""
    max_ranks: Positive | None = None
    """Ranks of one job."""
    max_priority: Literal["low", "normal", "high", "critical"] | None = None
    """Class of the most urgent ones."""
    accelerators: list[str] | None = None
    """GPUs that `resources.accelerator` may name; each of its CUDA jobs then has to name one."""
    images: list[str] | None = None
    """Container images that `environment.image` may name; each of its jobs then has to name one."""
    interpreters: list[str] | None = None
    """Pythons that `environment.interpreter` may name; `requirements` are installed by those that name none."""
